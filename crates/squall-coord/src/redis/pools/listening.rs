//! Hears who is called, on one connection for all waiters of this process: one of them listens, for all the others too.
//! Refuses to promise anything: a call that is missed costs time only, because waiters ask again by themselves.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{RedisError, Value};
use tokio::sync::Notify;

use super::super::{BlockingLink, millis};
use crate::Ticket;

/// How many calls are remembered for waiters that begin to wait just after being called.
const REMEMBERED: usize = 1024;

pub(super) struct Listening {
    calls: String,
    link: tokio::sync::Mutex<BlockingLink>,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    /// The last call that was read.
    position: u64,
    recent: VecDeque<(u64, String)>,
    waiters: HashMap<String, Arc<Notify>>,
}

impl Listening {
    pub(super) fn new(link: BlockingLink, calls: String) -> Self {
        Self { calls, link: tokio::sync::Mutex::new(link), heard: Mutex::default() }
    }

    /// Waits until `ticket` is called after `seen`, or `within` has passed.
    pub(super) async fn called(&self, ticket: &Ticket, seen: u64, within: Duration) -> Result<(), RedisError> {
        let Some(waiter) = Waiter::register(self, ticket, seen) else { return Ok(()) };
        let listening = async {
            let mut link = self.link.lock().await;
            loop {
                self.listen(&mut link, seen, within).await?;
            }
        };
        tokio::select! {
            biased;
            () = waiter.bell.notified() => Ok(()),
            outcome = tokio::time::timeout(within, listening) => outcome.unwrap_or(Ok(())),
        }
    }

    /// Reads the next calls and rings the bells of those who are meant.
    async fn listen(&self, link: &mut BlockingLink, seen: u64, within: Duration) -> Result<(), RedisError> {
        let position = self.lock().position;
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(100).arg("BLOCK").arg(millis(within).max(1));
        // After everything of that number: our own calls end in `-0`, somebody else's may not.
        command.arg("STREAMS").arg(&self.calls).arg(format!("{position}-{}", u64::MAX));
        let answer: Value = link.query(&command, within).await?;
        let mut heard = self.lock();
        if answer == Value::Nil {
            // Quiet, or the server has lost its data and counts from one again.
            heard.position = seen;
            return Ok(());
        }
        for (call, tickets) in redis::from_redis_value(answer).map(entries)? {
            // Whatever it says: what is not read past is read again at once, for ever.
            heard.position = call;
            for ticket in tickets.split(' ').filter(|ticket| !ticket.is_empty()) {
                if let Some(bell) = heard.waiters.get(ticket) {
                    bell.notify_one();
                }
                heard.recent.push_back((call, ticket.to_owned()));
            }
        }
        let excess = heard.recent.len().saturating_sub(REMEMBERED);
        heard.recent.drain(..excess);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().expect("nobody panics while holding it")
    }
}

/// Registered for as long as it waits.
struct Waiter<'a> {
    listening: &'a Listening,
    ticket: &'a Ticket,
    bell: Arc<Notify>,
}

impl<'a> Waiter<'a> {
    /// `None` if the ticket has been called already.
    fn register(listening: &'a Listening, ticket: &'a Ticket, seen: u64) -> Option<Self> {
        let mut heard = listening.lock();
        if heard.recent.iter().any(|(call, called)| *call > seen && called == ticket.as_str()) {
            return None;
        }
        let bell = Arc::new(Notify::new());
        heard.waiters.insert(ticket.as_str().to_owned(), bell.clone());
        Some(Self { listening, ticket, bell })
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.listening.lock().waiters.remove(self.ticket.as_str());
    }
}

/// `[[key, [[id, [field, value, …]], …]]]`; of fields and values only the server's own are certainly text.
type Streams = Vec<(Vec<u8>, Vec<(String, Vec<Vec<u8>>)>)>;

/// Calls and their tickets; none in what somebody else has put there.
fn entries(streams: Streams) -> Vec<(u64, String)> {
    let entries = streams.into_iter().flat_map(|(_, entries)| entries);
    entries
        .filter_map(|(id, fields)| {
            let call = id.split_once('-')?.0.parse().ok()?;
            let tickets = fields.chunks_exact(2).find(|pair| pair[0] == b"tickets");
            let tickets = tickets.and_then(|pair| String::from_utf8(pair[1].clone()).ok());
            Some((call, tickets.unwrap_or_default()))
        })
        .collect()
}
