"""Numbers of the AMQP 1.0 specification. Parts and sections refer to OASIS AMQP 1.0 (2012)."""

cdef enum:
    # Part 2, 2.3.1 and 2.3.2: framing
    FRAME_HEADER = 8
    FRAME_AMQP = 0
    FRAME_SASL = 1
    MIN_MAX_FRAME_SIZE = 512

cdef enum:
    # Part 1, 1.6: constructors
    T_DESCRIBED = 0x00
    T_NULL = 0x40
    T_TRUE = 0x41
    T_FALSE = 0x42
    T_UINT0 = 0x43
    T_ULONG0 = 0x44
    T_LIST0 = 0x45
    T_UBYTE = 0x50
    T_BYTE = 0x51
    T_SMALLUINT = 0x52
    T_SMALLULONG = 0x53
    T_SMALLINT = 0x54
    T_SMALLLONG = 0x55
    T_BOOLEAN = 0x56
    T_USHORT = 0x60
    T_SHORT = 0x61
    T_UINT = 0x70
    T_INT = 0x71
    T_FLOAT = 0x72
    T_CHAR = 0x73
    T_ULONG = 0x80
    T_LONG = 0x81
    T_DOUBLE = 0x82
    T_TIMESTAMP = 0x83
    T_UUID = 0x98
    T_BIN8 = 0xA0
    T_STR8 = 0xA1
    T_SYM8 = 0xA3
    T_BIN32 = 0xB0
    T_STR32 = 0xB1
    T_SYM32 = 0xB3
    T_LIST8 = 0xC0
    T_MAP8 = 0xC1
    T_LIST32 = 0xD0
    T_MAP32 = 0xD1
    T_ARRAY8 = 0xE0
    T_ARRAY32 = 0xF0

cdef enum:
    # Part 2, 2.7: performatives
    P_OPEN = 0x10
    P_BEGIN = 0x11
    P_ATTACH = 0x12
    P_FLOW = 0x13
    P_TRANSFER = 0x14
    P_DISPOSITION = 0x15
    P_DETACH = 0x16
    P_END = 0x17
    P_CLOSE = 0x18

cdef enum:
    # Part 2, 2.8.14; AMQP 1.0 part 3, 3.4 and 3.5; AMQP 1.0 part 4, 4.5
    D_ERROR = 0x1D
    D_RECEIVED = 0x23
    D_ACCEPTED = 0x24
    D_REJECTED = 0x25
    D_RELEASED = 0x26
    D_MODIFIED = 0x27
    D_SOURCE = 0x28
    D_TARGET = 0x29
    D_COORDINATOR = 0x30
    D_DECLARED = 0x33
    D_TRANSACTIONAL = 0x34

cdef enum:
    # Part 3, 3.2: message sections
    S_HEADER = 0x70
    S_DELIVERY_ANNOTATIONS = 0x71
    S_MESSAGE_ANNOTATIONS = 0x72
    S_PROPERTIES = 0x73
    S_APPLICATION_PROPERTIES = 0x74
    S_DATA = 0x75
    S_SEQUENCE = 0x76
    S_VALUE = 0x77
    S_FOOTER = 0x78

cdef enum:
    # Part 5, 5.3.3: SASL frames
    SASL_MECHANISMS = 0x40
    SASL_INIT = 0x41
    SASL_CHALLENGE = 0x42
    SASL_RESPONSE = 0x43
    SASL_OUTCOME = 0x44
