//! Names of apps, streams and processors, and every Redis key of a stream, with one builder for
//! each key. Rejects names that would make two keys collide. docs/redis.md lists the keys with
//! their types and writers.

use std::{fmt, sync::Arc};

use squall_coord::{LeaseEpoch, LeaseKeys};

/// The prefix of every key. The default, `squall`, prepends `squall:` and adds a hash tag, so that
/// the keys of one partition share a cluster slot, and so do the keys of one processor. The empty
/// namespace gives the key names of runnel, without hash tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace(Arc<str>);

impl Default for Namespace {
    fn default() -> Self {
        Self("squall".into())
    }
}

impl Namespace {
    /// A namespace. The empty name gives the key names of runnel.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.contains(|c: char| c.is_whitespace() || c == '{' || c == '}') {
            return Err(NameError {
                kind: "a namespace",
                name: name.to_owned(),
                rule: "a namespace has no blanks and no braces",
            });
        }
        Ok(Self(name.into()))
    }

    /// The empty namespace.
    pub(crate) fn empty() -> Self {
        Self("".into())
    }

    fn key(&self, start: &str, rest: fmt::Arguments<'_>) -> String {
        if self.0.is_empty() { format!("{start}:{rest}") } else { format!("{}:{start}:{rest}", self.0) }
    }

    /// The part of a key that determines its cluster slot.
    fn hash_tag(&self, part: impl fmt::Display) -> String {
        if self.0.is_empty() { part.to_string() } else { format!("{{{part}}}") }
    }
}

/// An invalid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` cannot be {kind}: {rule}")]
pub struct NameError {
    /// The kind of the name, with its article.
    pub kind: &'static str,
    /// The given name.
    pub name: String,
    /// The rule that the name breaks.
    pub rule: &'static str,
}

/// `app.stream`. The name of the app has no dots; the name of the stream may have inner dots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamName {
    app: Arc<str>,
    stream: Arc<str>,
}

impl StreamName {
    /// A stream of an app.
    pub fn new(app: &str, stream: &str) -> Result<Self, NameError> {
        check_app_name(app)?;
        check_name("a stream name", stream, "letters, digits, `_`, `-` and inner dots", |c| c == '.')?;
        if stream.starts_with('.') || stream.ends_with('.') {
            return Err(NameError {
                kind: "a stream name",
                name: stream.into(),
                rule: "a dot may not be first or last",
            });
        }
        Ok(Self { app: app.into(), stream: stream.into() })
    }

    /// Reads `APP.STREAM`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let rule = "write it as APP.STREAM";
        let (app, stream) = text.split_once('.').ok_or(NameError { kind: "a stream", name: text.into(), rule })?;
        Self::new(app, stream)
    }

    /// The app's name.
    pub fn app(&self) -> &str {
        &self.app
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// A processor on this stream.
    pub fn processor(&self, name: &str) -> Result<ProcessorName, NameError> {
        check_name("a processor name", name, "letters, digits, `_` and `-`", |_| false)?;
        Ok(ProcessorName { stream: self.clone(), processor: name.into() })
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.app, self.stream)
    }
}

/// `app.stream.processor`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessorName {
    stream: StreamName,
    processor: Arc<str>,
}

impl ProcessorName {
    /// Reads `APP.STREAM.PROCESSOR`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let rule = "write it as APP.STREAM.PROCESSOR";
        let (stream, processor) =
            text.rsplit_once('.').ok_or(NameError { kind: "a processor", name: text.into(), rule })?;
        let (app, stream) = stream.split_once('.').ok_or(NameError { kind: "a processor", name: text.into(), rule })?;
        StreamName::new(app, stream)?.processor(processor)
    }

    /// The stream that the processor reads.
    pub fn stream(&self) -> &StreamName {
        &self.stream
    }

    /// The name of the processor, which is also the name of its consumer groups.
    pub fn processor(&self) -> &str {
        &self.processor
    }
}

impl fmt::Display for ProcessorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.stream, self.processor)
    }
}

pub(crate) fn check_app_name(app: &str) -> Result<(), NameError> {
    check_name("an app name", app, "letters, digits, `_` and `-`", |_| false)
}

fn check_name(
    kind: &'static str,
    name: &str,
    rule: &'static str,
    extra: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || extra(c);
    if name.is_empty() || !name.chars().all(allowed) {
        return Err(NameError { kind, name: name.to_owned(), rule });
    }
    Ok(())
}

impl Namespace {
    /// The events of one partition: a stream.
    pub fn events_key(&self, name: &StreamName, partition: u32) -> String {
        self.key("__strm", format_args!("{name}.{}", self.hash_tag(partition)))
    }

    /// The last batch of one sender to one partition: a string. Makes retries idempotent.
    pub(crate) fn dedup_key(&self, name: &StreamName, partition: u32, sender: &str) -> String {
        self.key("__sent", format_args!("{name}.{}.{sender}", self.hash_tag(partition)))
    }

    /// The definition of a stream, which all clients share: a hash.
    pub(crate) fn definition_key(&self, name: &StreamName) -> String {
        self.key("__meta", format_args!("{name}"))
    }

    /// What the keys of all definitions begin with.
    pub(crate) fn definition_prefix(&self) -> String {
        self.key("__meta", format_args!(""))
    }

    /// The owner that may acknowledge events of one partition: a hash with owner, epoch and until.
    pub fn lock_key(&self, name: &ProcessorName, partition: u32) -> String {
        self.key("__lock", format_args!("{name}.{}", self.hash_tag(partition)))
    }

    /// The gate of one partition: an empty stream that exists as long as the owner may read. Every
    /// read names it beside the events.
    pub(crate) fn gate_key(&self, name: &ProcessorName, partition: u32, epoch: LeaseEpoch, number: u64) -> String {
        self.key("__gate", format_args!("{name}.{}.{epoch}.{number}", self.hash_tag(partition)))
    }

    /// Why a partition is in quarantine: a string with JSON.
    pub(crate) fn quarantine_key(&self, name: &ProcessorName, partition: u32) -> String {
        self.key("__quar", format_args!("{name}.{}", self.hash_tag(partition)))
    }

    /// The worker that runs `on_leader` tasks: a string.
    pub fn leader_key(&self, app: &str) -> String {
        self.key("__lead", format_args!("{app}"))
    }

    /// The keys by which the executors of a processor coordinate.
    pub fn lease_keys(&self, name: &ProcessorName) -> LeaseKeys {
        let name = self.hash_tag(name);
        LeaseKeys {
            members: self.key("__memb", format_args!("{name}")).into(),
            live: self.key("__live", format_args!("{name}")).into(),
            leases: self.key("__held", format_args!("{name}")).into(),
            control: self.key("__ctrl", format_args!("{name}")).into(),
            admin: self.key("__lock", format_args!("{name}.admin")).into(),
            heartbeat_prefix: self.key("__beat", format_args!("{name}.")).into(),
            units_field: "partitions",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printer() -> ProcessorName {
        ProcessorName::parse("myapp.orders.printer").unwrap()
    }

    #[test]
    fn empty_namespace_gives_runnel_key_names() {
        let runnel = Namespace::new("").unwrap();
        let keys = runnel.lease_keys(&printer());
        assert_eq!(runnel.events_key(printer().stream(), 3), "__strm:myapp.orders.3");
        assert_eq!(&*keys.members, "__memb:myapp.orders.printer");
        assert_eq!(&*keys.control, "__ctrl:myapp.orders.printer");
        assert_eq!(runnel.lock_key(&printer(), 3), "__lock:myapp.orders.printer.3");
        assert_eq!(&*keys.admin, "__lock:myapp.orders.printer.admin");
        assert_eq!(keys.heartbeat_key(&squall_coord::MemberId::new("x")), "__beat:myapp.orders.printer.x");
        assert_eq!(runnel.leader_key("myapp"), "__lead:myapp");
    }

    #[test]
    fn default_namespace_hash_tags_partition_and_processor() {
        let squall = Namespace::default();
        assert_eq!(squall.events_key(printer().stream(), 3), "squall:__strm:myapp.orders.{3}");
        assert_eq!(squall.lock_key(&printer(), 3), "squall:__lock:myapp.orders.printer.{3}");
        assert_eq!(&*squall.lease_keys(&printer()).members, "squall:__memb:{myapp.orders.printer}");
        assert_eq!(&*squall.lease_keys(&printer()).admin, "squall:__lock:{myapp.orders.printer}.admin");
    }

    #[test]
    fn names_that_make_keys_collide_are_rejected() {
        for bad in ["", "a.b", "a b", "{a}", "a\n"] {
            assert!(check_app_name(bad).is_err(), "{bad:?}");
        }
        assert!(StreamName::parse("orders").is_err());
        assert_eq!(StreamName::parse("myapp.dead.orders").unwrap().stream(), "dead.orders");
        assert_eq!(ProcessorName::parse("myapp.dead.orders.p").unwrap().stream().stream(), "dead.orders");
        assert!(Namespace::new("a{b}").is_err());
    }
}
