#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amqp.h"

struct options options = {
    .host = "127.0.0.1", .address = "bench", .senders = 1, .receivers = 1, .count = 1000000, .size = 100,
    .credit = 1000, .session_window = 0x7fffffff, .max_frame = 65536, .stall_seconds = 20, .opening = 64,
};

static const char usage[] =
    "usage: amqpload --port PORT [options]\n"
    "  what:   --address A  --size BYTES  --count N (per sender)  --rate MSGS_PER_S (in all)\n"
    "          --random (bodies that do not compress)\n"
    "          --seconds S (or until SIGTERM)  --warm S (messages of the first S seconds do not count for the latency)\n"
    "          --presettled  --allow-loss\n"
    "  who:    --pairs N | --senders N --receivers M (0: somebody else receives)  --distinct (A.0, A.1 ...)  --multicast\n"
    "          --anonymous (senders without a target: each message names its address)\n"
    "          --idle N (only open N connections and report what they cost)  --opening M (at a time)\n"
    "          --standing N (only N clients that stay and come back, --opening at a time, until the end of standard input;\n"
    "          a line of JSON each time all have their links)\n"
    "          --handshakes N (only so many TLS handshakes, --opening at a time)  --resume (one session)\n"
    "          --operation connect|short|rpc|attach|attach-pipelined (clients, --opening at a time, repeat it --count times)\n"
    "          with it: --user U --password P (SCRAM-SHA-256)  --hostname H (in the open), also with --standing;\n"
    "          --resume (one TLS session)\n"
    "  TLS:    --tls  --ca FILE (the peer is checked)  --cipher SUITE (of TLS 1.3)  --certificate FILE --key FILE\n"
    "  where:  --websocket  --host IP  --receiver-port PORT  --direct (through a byte relay)\n"
    "          --container ID (receivers are brokers of this name: the router attaches, they answer)\n"
    "          --place apart|together (sender and receiver processes; needs --pid)\n"
    "  limits: --credit N  --session-window FRAMES  --max-frame BYTES  --first-id ID\n"
    "          --read-rate BYTES_PER_S  --throttle read|window  --stall-seconds S\n"
    "  router: --pid PID (repeatable; its descendants are included)\n"
    "One line of JSON on standard output; status 1 after any fault, 2 for wrong usage.\n";

static void wrong(const char *name, const char *text, const char *why) {
    fprintf(stderr, "amqpload: --%s %s: %s\n%s", name, text, why, usage);
    exit(2);
}

static double number(const char *name, const char *text, double least, double most) {
    char *end, why[96];
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno || !(value >= least && value <= most)) {
        snprintf(why, sizeof why, "a number from %g to %g is wanted", least, most);
        wrong(name, text, why);
    }
    return value;
}

static uint64_t integer(const char *name, const char *text, double least, double most) {
    double value = number(name, text, least, most);
    if (value != floor(value)) wrong(name, text, "a whole number is wanted");
    return (uint64_t)value;
}

static int choice(const char *name, const char *text, const char *first, const char *second) {
    if (strcmp(text, first) && strcmp(text, second)) {
        char why[96];
        snprintf(why, sizeof why, "%s or %s is wanted", first, second);
        wrong(name, text, why);
    }
    return strcmp(text, second) == 0;
}

static void check(void) {
    if (!options.port) wrong("port", "", "is required");
    if (strlen(options.address) > 200) wrong("address", options.address, "at most 200 bytes");
    if (options.distinct && options.senders != options.receivers)
        wrong("distinct", "", "needs as many senders as receivers");
    if (options.direct && options.senders != options.receivers)
        wrong("direct", "", "a byte relay joins pairs: as many senders as receivers");
    if (options.direct && !options.receiver_port) wrong("direct", "", "needs --receiver-port, the relay's other port");
    if (options.container && options.direct) wrong("container", options.container, "there is no router to attach");
    if (options.container && strlen(options.container) > 60) wrong("container", options.container, "at most 60 bytes");
    if (!options.tls && (options.ca || options.cipher || options.certificate || options.handshakes))
        wrong("tls", "", "is needed by --ca, --cipher, --certificate and --handshakes");
    if (!options.certificate != !options.key) wrong("certificate", "", "and --key go together");
    if (options.resume && !(options.tls && (options.handshakes || options.operation)))
        wrong("resume", "", "needs --handshakes, or --tls and --operation");
    if (!options.operation && !options.standing && (options.user || options.hostname))
        wrong("operation", "", "or --standing is needed by --user and --hostname");
    if (!options.user != !options.password) wrong("user", "", "and --password go together");
    if (options.operation && options.count > UINT32_MAX) wrong("count", "", "too many");
    if (options.websocket && (options.tls || options.direct)) wrong("websocket", "", "is not for --tls and --direct");
    if (options.tls && options.read_rate > 0) wrong("read-rate", "", "is not for TLS, which reads ahead");
    if (options.place != ANYWHERE && (options.pid_count == 0 || options.senders != 1 || options.receivers != 1))
        wrong("place", "", "needs --pid and one sender and one receiver");
    if (options.seconds > 0 && options.count == 1000000) options.count = UINT64_C(1) << 40;
}

void options_parse(int argc, char **argv) {
    enum { HOST, PORT, RECEIVER_PORT, ADDRESS, COUNT, SECONDS, SIZE, RATE, PRESETTLED, ALLOW_LOSS, PAIRS, SENDERS,
           RECEIVERS, DISTINCT, MULTICAST, IDLE, OPENING, DIRECT, PLACE, CREDIT, WINDOW, MAX_FRAME, FIRST_ID, READ_RATE,
           THROTTLE, STALL, PID, CONTAINER, ANONYMOUS, TLS, CA, CIPHER, CERTIFICATE, KEY, HANDSHAKES, RESUME, WEBSOCKET,
           OPERATION, USER, PASSWORD, HOSTNAME, STANDING, WARM, RANDOM, HELP };
    static const struct option names[] = {
        {"host", 1, 0, HOST}, {"port", 1, 0, PORT}, {"receiver-port", 1, 0, RECEIVER_PORT},
        {"address", 1, 0, ADDRESS}, {"count", 1, 0, COUNT}, {"seconds", 1, 0, SECONDS}, {"size", 1, 0, SIZE},
        {"rate", 1, 0, RATE}, {"presettled", 0, 0, PRESETTLED}, {"allow-loss", 0, 0, ALLOW_LOSS},
        {"pairs", 1, 0, PAIRS}, {"senders", 1, 0, SENDERS}, {"receivers", 1, 0, RECEIVERS},
        {"distinct", 0, 0, DISTINCT}, {"multicast", 0, 0, MULTICAST}, {"idle", 1, 0, IDLE}, {"opening", 1, 0, OPENING},
        {"direct", 0, 0, DIRECT},
        {"place", 1, 0, PLACE}, {"credit", 1, 0, CREDIT}, {"session-window", 1, 0, WINDOW},
        {"max-frame", 1, 0, MAX_FRAME}, {"first-id", 1, 0, FIRST_ID}, {"read-rate", 1, 0, READ_RATE},
        {"throttle", 1, 0, THROTTLE}, {"stall-seconds", 1, 0, STALL}, {"pid", 1, 0, PID},
        {"container", 1, 0, CONTAINER}, {"anonymous", 0, 0, ANONYMOUS}, {"tls", 0, 0, TLS}, {"ca", 1, 0, CA}, {"cipher", 1, 0, CIPHER},
        {"certificate", 1, 0, CERTIFICATE}, {"key", 1, 0, KEY}, {"handshakes", 1, 0, HANDSHAKES},
        {"resume", 0, 0, RESUME}, {"websocket", 0, 0, WEBSOCKET}, {"operation", 1, 0, OPERATION},
        {"user", 1, 0, USER}, {"password", 1, 0, PASSWORD}, {"hostname", 1, 0, HOSTNAME},
        {"standing", 1, 0, STANDING}, {"warm", 1, 0, WARM}, {"random", 0, 0, RANDOM}, {"help", 0, 0, HELP}, {0},
    };
    int index;
    for (int key; (key = getopt_long(argc, argv, "", names, &index)) != -1;) {
        const char *name = key == '?' ? "" : names[index].name;
        switch (key) {
        case HOST: options.host = optarg; break;
        case PORT: options.port = (int)integer(name, optarg, 1, 65535); break;
        case RECEIVER_PORT: options.receiver_port = (int)integer(name, optarg, 1, 65535); break;
        case ADDRESS: options.address = optarg; break;
        case COUNT: options.count = integer(name, optarg, 1, 1e12); break;
        case SECONDS: options.seconds = number(name, optarg, 0.001, 1e6); break;
        case SIZE: options.size = (uint32_t)integer(name, optarg, BODY_STAMP, UINT32_MAX); break;
        case RATE: options.rate = number(name, optarg, 0.001, 1e9); break;
        case PRESETTLED: options.presettled = true; break;
        case ALLOW_LOSS: options.allow_loss = true; break;
        case PAIRS: options.senders = options.receivers = (unsigned)integer(name, optarg, 1, 10000); break;
        case SENDERS: options.senders = (unsigned)integer(name, optarg, 1, 10000); break;
        case RECEIVERS: options.receivers = (unsigned)integer(name, optarg, 0, 10000); break;
        case DISTINCT: options.distinct = true; break;
        case MULTICAST: options.multicast = true; break;
        case IDLE: options.idle = (unsigned)integer(name, optarg, 1, 100000); break;
        case OPENING: options.opening = (unsigned)integer(name, optarg, 1, MOST_STANDING); break;
        case DIRECT: options.direct = true; break;
        case PLACE: options.place = APART + choice(name, optarg, "apart", "together"); break;
        case CREDIT: options.credit = (uint32_t)integer(name, optarg, 1, 0x7fffffff); break;
        case WINDOW: options.session_window = (uint32_t)integer(name, optarg, 1, 0x7fffffff); break;
        case MAX_FRAME: options.max_frame = (uint32_t)integer(name, optarg, MIN_MAX_FRAME, 16 << 20); break;
        case FIRST_ID: options.first_id = (uint32_t)integer(name, optarg, 0, UINT32_MAX); break;
        case READ_RATE: options.read_rate = number(name, optarg, 1, 1e12); break;
        case THROTTLE: options.throttle = choice(name, optarg, "read", "window"); break;
        case STALL: options.stall_seconds = number(name, optarg, 0.1, 1e6); break;
        case PID:
            if (options.pid_count == MAX_PIDS) wrong(name, optarg, "too many");
            options.pids[options.pid_count++] = (int)integer(name, optarg, 1, 4194304);
            break;
        case CONTAINER: options.container = optarg; break;
        case ANONYMOUS: options.anonymous = true; break;
        case TLS: options.tls = true; break;
        case CA: options.ca = optarg; break;
        case CIPHER: options.cipher = optarg; break;
        case CERTIFICATE: options.certificate = optarg; break;
        case KEY: options.key = optarg; break;
        case HANDSHAKES: options.handshakes = (unsigned)integer(name, optarg, 1, 1e6); break;
        case RESUME: options.resume = true; break;
        case WEBSOCKET: options.websocket = true; break;
        case OPERATION: options.operation = optarg; break;
        case USER: options.user = optarg; break;
        case PASSWORD: options.password = optarg; break;
        case HOSTNAME: options.hostname = optarg; break;
        case STANDING: options.standing = (unsigned)integer(name, optarg, 1, MOST_STANDING); break;
        case WARM: options.warm = number(name, optarg, 0, 1e6); break;
        case RANDOM: options.random = true; break;
        case HELP: fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc) wrong("", argv[optind], "is not an option");
    check();
}
