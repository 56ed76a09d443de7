// A client with go-amqp: client send|receive|server|request PORT ADDRESS [COUNT | TEXT...]
//
// Prints one JSON value on standard output; "attached" on standard error when messages can come.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	command, port, address, more := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := amqp.Dial(ctx, "amqp://127.0.0.1:"+port, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
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
	if err := conn.Close(); err != nil {
		fail("close", err)
	}
}

func number(words []string) int {
	count, err := strconv.Atoi(words[0])
	if err != nil {
		fail("count", err)
	}
	return count
}

// Send count messages, each confirmed before the next; print how many were accepted.
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

// Accept count messages; print their bodies.
func receive(ctx context.Context, session *amqp.Session, address string, count int) {
	// Enough for all: go-amqp's next flow may take credit back that is used already, which RabbitMQ 3.10 reckons as
	// 255 and less, and then it sends nothing more.
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

// body gives the text of a data section or of a string value.
func body(message *amqp.Message) string {
	if text, ok := message.Value.(string); ok {
		return text
	}
	return string(message.GetData())
}

// Answer requests with their body in capitals until ended; go-amqp has no anonymous sender, so one for each answer.
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

// Ask each text with a dynamic reply-to; print the answers.
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
