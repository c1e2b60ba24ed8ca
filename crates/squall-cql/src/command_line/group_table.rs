//! The groups of options, as data: those of ScyllaDB's cassandra-stress and of Apache's. Texts are
//! read by `help`, names and defaults by the parser.

use super::grammar::{FormSpec, GroupSpec, OptionSpec};

const fn option(name: &'static str, default: &'static str, meaning: &'static str) -> OptionSpec {
    OptionSpec { name, default, meaning }
}

const fn group(
    name: &'static str,
    summary: &'static str,
    options: &'static [&'static [OptionSpec]],
    example: &'static str,
) -> GroupSpec {
    GroupSpec { name, aliases: &[], summary, options, forms: &[], example }
}

pub(super) const GROUPS: &[GroupSpec] = &[
    GroupSpec {
        name: "-rate",
        aliases: &[],
        summary: "how many operations run at a time, and how fast they start",
        options: &[RATE],
        forms: &[
            FormSpec { required: &["threads="], options: &["throttle=", "fixed="] },
            FormSpec { required: &[], options: &["auto", "threads>=", "threads<="] },
        ],
        example: "write n=1M -rate threads=50 fixed=10000/s",
    },
    GroupSpec {
        name: "-pop",
        aliases: &[],
        summary: "which partitions the operations work on",
        options: &[POPULATION],
        forms: &[
            FormSpec { required: &["seq="], options: &["no-wrap", "read-lookback="] },
            FormSpec { required: &[], options: &["dist="] },
        ],
        example: "read duration=5m -pop 'dist=gaussian(1..10M,5)' -rate threads=50",
    },
    GroupSpec {
        name: "-col",
        aliases: &[],
        summary: "number, names and sizes of the columns of standard1 and counter1",
        options: &[COLUMNS],
        forms: &[FormSpec { required: &["names="], options: &[] }, FormSpec { required: &[], options: &["n="] }],
        example: "write n=1M -col 'n=fixed(8)' 'size=uniform(10..500)'",
    },
    group(
        "-insert",
        "how rows of a profile are put into operations",
        &[INSERT],
        "user profile=p.yaml 'ops(insert=1)' n=1k -insert 'visits=fixed(10)'",
    ),
    group(
        "-schema",
        "keyspace, replication, compaction and compression",
        &[SCHEMA],
        "write n=1M -schema 'replication(strategy=NetworkTopologyStrategy,dc1=3)' compression=LZ4Compressor",
    ),
    group("-errors", "what happens when an operation fails", &[ERRORS], "write n=1M -errors retries=3 ignore"),
    group(
        "-log",
        "what is printed, how often, and into which files",
        &[LOG],
        "write n=1M -log interval=10s hdrfile=run.hdr",
    ),
    group(
        "-mode",
        "protocol, user, password and connections",
        &[MODE],
        "write n=1M -mode native cql3 user=cassandra password=cassandra",
    ),
    group("-node", "the nodes to connect to", &[NODE], "write n=1M -node 10.0.0.1,10.0.0.2 datacenter=dc1"),
    group("-port", "the ports of the nodes", &[PORT], "write n=1M -port native=9142"),
    group("-transport", "TLS", &[TRANSPORT], "write n=1M -transport truststore=trust.p12 truststore-password=secret"),
    GroupSpec {
        name: "-graph",
        aliases: &[],
        summary: "the HTML report",
        options: &[GRAPH],
        forms: &[FormSpec { required: &["file="], options: &[] }],
        example: "write n=1M -graph file=run.html title=baseline",
    },
    group(
        "-tokenrange",
        "how token-range queries of a profile walk the ring",
        &[TOKEN_RANGE],
        "user profile=p.yaml 'ops(scan=1)' -tokenrange split-factor=10",
    ),
    group("-jmx", "accepted and not used: nothing is read over JMX", &[JMX], "write n=1M -jmx user=a password=b"),
    group(
        "-credentials-file",
        "a file with user names and passwords",
        &[CREDENTIALS],
        "write n=1M -credentials-file credentials.properties",
    ),
    group(
        "-reporting",
        "how often the table is printed",
        &[REPORTING],
        "write n=1M -reporting output-frequency=5s header-frequency=20",
    ),
];

const RATE: &[OptionSpec] = &[
    option("threads=", "", "operations that run at the same time, over all processes"),
    option("throttle=", "", "at most this many operations per second: 5000/s"),
    option(
        "fixed=",
        "",
        "starts operations by a schedule of this rate and counts latency from the due time: 5000/s; not with throttle=",
    ),
    option("auto", "", "raises the number of threads until the rate no longer improves"),
    option("threads>=", "4", "the first number of threads of auto"),
    option("threads<=", "1000", "the highest number of threads of auto"),
    option("processes=", "1", "threads of the generator that share the operations"),
];

const POPULATION: &[OptionSpec] = &[
    option("seq=", "", "takes the seeds of a range in order: 1..1M"),
    option("no-wrap", "", "ends the run after the last seed of seq="),
    option("read-lookback=", "", "distribution of how far behind the newest written seed a read goes"),
    option("dist=", "", "draws each seed from a distribution: gaussian(1..1M)"),
    option("contents=", "", "order of the rows of a partition: sorted or shuffled"),
    option(
        "seeds=",
        "classic",
        "keys of Cassandra 3.11, ScyllaDB and cql-stress (classic), or of Cassandra 4 and later (apache4)",
    ),
];

const COLUMNS: &[OptionSpec] = &[
    option("n=", "FIXED(5)", "number of columns, fixed(N)"),
    option("names=", "", "names of the columns, separated by commas"),
    option("size=", "FIXED(34)", "distribution of the bytes of a cell"),
    option("slice", "", "reads with SELECT * instead of naming the columns"),
    option("timestamp=", "", "writes every cell with this timestamp, in microseconds"),
    option("comparator=", "AsciiType", "AsciiType, UTF8Type or TimeUUIDType; does not change the data"),
    option("super=", "0", "super columns; only 0 is possible"),
];

const INSERT: &[OptionSpec] = &[
    option("visits=", "fixed(1)", "in how many operations a partition is written"),
    option("revisit=", "uniform(1..1M)", "which unfinished partition is written next, and how many there are"),
    option("partitions=", "", "partitions that one operation writes"),
    option("batchtype=", "", "logged, unlogged or counter"),
    option("select-ratio=", "", "chance of each row to be written: fixed(1)/2"),
    option("row-population-ratio=", "fixed(1)/1", "part of the columns that get a value"),
];

const SCHEMA: &[OptionSpec] = &[
    option("keyspace=", "keyspace1", "the keyspace"),
    option("replication(", "", "strategy=, factor= and options of the strategy: replication(factor=3)"),
    option("compaction(", "", "strategy= and options of the strategy"),
    option("compression=", "", "compression of the tables' files; none if it is missing"),
    option("storage(", "", "storage options of ScyllaDB"),
];

const ERRORS: &[OptionSpec] = &[
    option("retries=", "9", "further tries of a failed operation"),
    option("ignore", "", "counts a failed operation instead of ending the run"),
    option("skip-read-validation", "", "does not compare what a read returned"),
    option("fail-fast", "", "ends the run at the first failed try"),
    option("delay-policy=", "", "pause before another try: constant, linear or exponential"),
    option("min-delay-ms=", "0", "shortest pause before another try"),
    option("max-delay-ms=", "0", "longest pause before another try"),
    option("skip-unsupported-columns", "", "leaves out columns of a profile whose type has no generator"),
];

const LOG: &[OptionSpec] = &[
    option("level=", "normal", "minimal, normal or verbose"),
    option("file=", "", "writes the output to this file"),
    option("hdrfile=", "", "writes the latencies of every interval to this HdrHistogram log"),
    option("interval=", "1s", "time between two lines of the table: 10 or 10s; rounded up to whole seconds"),
    option("no-summary", "", "prints no summary"),
    option("no-settings", "", "does not print the settings"),
    option("print-statements-on-error", "", "prints the statement of a failed operation"),
];

const MODE: &[OptionSpec] = &[
    option("native", "", "the native protocol, which is always used"),
    option("cql3", "", "CQL 3, which is always used"),
    option("prepared", "", "prepared statements, which are the default"),
    option("unprepared", "", "sends every statement as text; not with user"),
    option("user=", "", "user name"),
    option("username=", "", "the same as user="),
    option("password=", "", "password"),
    option("auth-provider=", "", "PlainTextAuthProvider, which is always used; others are refused"),
    option("protocolVersion=", "", "native protocol; only 4 is possible"),
    option("compression=", "none", "compression of frames: none, lz4 or snappy"),
    option("connectionsPerHost=", "8", "connections to each node"),
    option("maxPending=", "", "most requests in flight for each connection; more wait"),
    option("requestTimeout=", "12000", "time limit of a request in milliseconds"),
    option("connectTimeout=", "5000", "time limit of connecting to a node in milliseconds; twice for all together"),
    option("port=", "", "the same as -port native="),
];

const NODE: &[OptionSpec] = &[
    option("", "localhost", "host names or addresses, separated by commas; host:port is possible"),
    option("file=", "", "a file with one host per line"),
    option("whitelist", "", "connects to no other nodes than these"),
    option("datacenter=", "", "sends only to nodes of this data centre"),
    option("rack=", "", "prefers nodes of this rack"),
    option("loadbalance=", "", "ignored: requests go to a replica, in turns"),
    option("remote-dc=", "", "allows nodes of other data centres when the local ones are down"),
];

const PORT: &[OptionSpec] = &[
    option("native=", "9042", "port of the native protocol"),
    option("jmx=", "7199", "accepted and not used"),
    option("thrift=", "9160", "accepted and not used"),
];

const TRANSPORT: &[OptionSpec] = &[
    option("truststore=", "", "certificates to trust (JKS, PKCS12 or PEM); switches TLS on"),
    option("truststore-password=", "", "password of the trust store"),
    option("keystore=", "", "the client's certificate and key (JKS, PKCS12 or PEM)"),
    option("keystore-password=", "", "password of the key store"),
    option("ssl-protocol=", "TLS", "TLS, TLSv1.2 or TLSv1.3"),
    option("ssl-alg=", "SunX509", "accepted and not used"),
    option("store-type=", "JKS", "accepted and not used: the type is read from the file"),
    option("ssl-ciphers=", "", "cipher suites to offer, by their names in Java, separated by commas"),
    option("hostname-verification=", "", "true: the certificate must name the node's address"),
    option("factory=", "", "accepted and not used"),
];

const GRAPH: &[OptionSpec] = &[
    option("file=", "", "the HTML file"),
    option("revision=", "unknown", "name of the configuration that is tested"),
    option("title=", "", "title of the report"),
    option("op=", "", "accepted and not used"),
];

const TOKEN_RANGE: &[OptionSpec] = &[
    option("split-factor=", "1", "parts of each token range"),
    option("wrap", "", "begins again after the last range"),
];

const JMX: &[OptionSpec] =
    &[option("user=", "", "not used"), option("password=", "", "not used"), option("password-file=", "", "not used")];

const CREDENTIALS: &[OptionSpec] = &[option("", "", "properties cql.username and cql.password")];

const REPORTING: &[OptionSpec] = &[
    option("output-frequency=", "1s", "the same as -log interval="),
    option("header-frequency=", "", "prints the table's header again after this many lines"),
];
