// Client with go-amqp: client send|receive|server|request WHERE ADDRESS [COUNT | TEXT...]
//
// WHERE is a port, or amqps://USER:PASSWORD@HOST:PORT?mechanism=M&ca=FILE&certificate=FILE&key=FILE.
// Prints one JSON value on standard output. Writes "attached" on standard error when its receiver is attached.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const patience = 30 * time.Second

func fail(what string, err error) {
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		err = link.RemoteErr
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	os.Exit(1)
}

func show(value any) {
	text, err := json.Marshal(value)
	if err != nil {
		fail("json", err)
	}
	fmt.Println(string(text))
}

func main() {
	command, where, address, more := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	place, options := settings(where)
	conn, err := amqp.Dial(ctx, place, options)
	if err != nil {
		fail("dial", err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		fail("session", err)
	}
	switch command {
	case "send":
		send(ctx, session, address, number(more))
	case "receive":
		receive(ctx, session, address, number(more))
	case "server":
		serve(session, address)
	case "request":
		request(ctx, session, address, more)
	default:
		fail(command, errors.New("expected send, receive, server or request"))
	}
	// go-amqp does not wait for the peer's close frame: over TLS, Close may return the end of the stream as an error.
	if err := conn.Close(); err != nil && err.Error() != io.EOF.Error() {
		fail("close", err)
	}
}

// settings returns the URL and the connection options for where.
func settings(where string) (string, *amqp.ConnOptions) {
	if !strings.Contains(where, "://") {
		return "amqp://127.0.0.1:" + where, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}
	}
	place, err := url.Parse(where)
	if err != nil {
		fail("url", err)
	}
	query := place.Query()
	authorities, err := os.ReadFile(query.Get("ca"))
	if err != nil {
		fail("ca", err)
	}
	security := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: place.Hostname()}
	if !security.RootCAs.AppendCertsFromPEM(authorities) {
		fail("ca", errors.New("no certificate"))
	}
	if query.Has("certificate") {
		own, err := tls.LoadX509KeyPair(query.Get("certificate"), query.Get("key"))
		if err != nil {
			fail("certificate", err)
		}
		security.Certificates = []tls.Certificate{own}
	}
	options := &amqp.ConnOptions{TLSConfig: security}
	user := place.User.Username()
	secret, _ := place.User.Password()
	switch mechanism := query.Get("mechanism"); mechanism {
	case "PLAIN":
		options.SASLType = amqp.SASLTypePlain(user, secret)
	case "EXTERNAL":
		options.SASLType = amqp.SASLTypeExternal("")
	case "XOAUTH2":
		options.SASLType = amqp.SASLTypeXOAUTH2(user, secret, 0)
	case "ANONYMOUS":
		options.SASLType = amqp.SASLTypeAnonymous()
	default:
		fail("mechanism", errors.New(mechanism))
	}
	return "amqps://" + place.Host, options
}

func number(words []string) int {
	count, err := strconv.Atoi(words[0])
	if err != nil {
		fail("count", err)
	}
	return count
}

// send sends count messages, each accepted before the next, and prints count.
func send(ctx context.Context, session *amqp.Session, address string, count int) {
	sender, err := session.NewSender(ctx, address, nil)
	if err != nil {
		fail("attach", err)
	}
	for n := 0; n < count; n++ {
		message := &amqp.Message{Header: &amqp.MessageHeader{Durable: true}, Value: strconv.Itoa(n)}
		if err := sender.Send(ctx, message, nil); err != nil {
			fail("send", err)
		}
	}
	show(count)
}

// receive accepts count messages and prints their bodies.
func receive(ctx context.Context, session *amqp.Session, address string, count int) {
	// Credit for all messages at once. A later flow of go-amqp may withdraw credit that is already used. RabbitMQ 3.10
	// computes the negative credit as 255 and less, and then sends no more messages.
	receiver, err := session.NewReceiver(ctx, address, &amqp.ReceiverOptions{Credit: 250})
	if err != nil {
		fail("attach", err)
	}
	fmt.Fprintln(os.Stderr, "attached")
	bodies := []string{}
	for len(bodies) < count {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			fail("receive", err)
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			fail("accept", err)
		}
		bodies = append(bodies, body(message))
	}
	show(bodies)
}

// body returns the text of a data section or of a string value.
func body(message *amqp.Message) string {
	if text, ok := message.Value.(string); ok {
		return text
	}
	return string(message.GetData())
}

// serve answers requests with their body in capitals until the process is killed. go-amqp has no anonymous sender, so
// each answer has a sender of its own.
func serve(session *amqp.Session, address string) {
	ctx := context.Background()
	receiver, err := session.NewReceiver(ctx, address, nil)
	if err != nil {
		fail("attach", err)
	}
	fmt.Fprintln(os.Stderr, "attached")
	for {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			fail("receive", err)
		}
		sender, err := session.NewSender(ctx, *message.Properties.ReplyTo, nil)
		if err != nil {
			fail("reply", err)
		}
		answer := &amqp.Message{
			Properties: &amqp.MessageProperties{CorrelationID: message.Properties.CorrelationID},
			Value:      strings.ToUpper(body(message)),
		}
		if err := sender.Send(ctx, answer, nil); err != nil {
			fail("answer", err)
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			fail("accept", err)
		}
		if err := sender.Close(ctx); err != nil {
			fail("close", err)
		}
	}
}

// request sends each text as a request with a dynamic reply-to and prints the answers.
func request(ctx context.Context, session *amqp.Session, address string, texts []string) {
	receiver, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		fail("dynamic", err)
	}
	sender, err := session.NewSender(ctx, address, nil)
	if err != nil {
		fail("attach", err)
	}
	replyTo := receiver.Address()
	answers := []string{}
	for n, text := range texts {
		message := &amqp.Message{
			Properties: &amqp.MessageProperties{ReplyTo: &replyTo, CorrelationID: uint64(n)},
			Value:      text,
		}
		if err := sender.Send(ctx, message, nil); err != nil {
			fail("send", err)
		}
		answer, err := receiver.Receive(ctx, nil)
		if err != nil {
			fail("answer", err)
		}
		if err := receiver.AcceptMessage(ctx, answer); err != nil {
			fail("accept", err)
		}
		answers = append(answers, body(answer))
	}
	show(answers)
}
