//! Words for a reader that may not be listening: a pipe that nobody reads, a terminal that is held. They are handed to a thread of
//! their own, so that whoever speaks never waits: a run goes on, ends and can be stopped whatever becomes of its words. Computes nothing.

use std::{
    io::{self, BufWriter, ErrorKind, Write},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

/// So many pieces can wait to be read, an hour of lines; then what comes is not taken.
const MOST_WAITING: usize = 4096;
/// So much is said at once, at most.
const LONGEST_PIECE: usize = 64 * 1024;
/// How long a reader that does not read is waited for at the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Somewhere to speak to. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Speech {
    queue: SyncSender<Piece>,
    problem: Arc<Mutex<Option<io::Error>>>,
}

#[derive(Debug)]
enum Piece {
    Words(Vec<u8>),
    /// Everything before this has been written.
    End(SyncSender<()>),
}

impl Speech {
    pub(crate) fn to(out: impl Write + Send + 'static) -> Speech {
        let (queue, pieces) = sync_channel(MOST_WAITING);
        let problem: Arc<Mutex<Option<io::Error>>> = Arc::default();
        let found = problem.clone();
        std::thread::spawn(move || speak(out, &pieces, &found));
        Speech { queue, problem }
    }

    /// Hands `words` over. An error if too much is waiting already, or if something could not be written before.
    pub(crate) fn say(&self, words: impl Into<Vec<u8>>) -> io::Result<()> {
        match self.take_problem() {
            Some(problem) => Err(problem),
            None => self.queue.try_send(Piece::Words(words.into())).map_err(|_| unread()),
        }
    }

    /// Waits until everything has been written, or `patience` is over; as long as it takes if there is none.
    pub(crate) fn settle(&self, patience: Option<Duration>) -> io::Result<()> {
        let (done, end) = sync_channel(1);
        let settled = match patience {
            // Blocks while the queue is full, too.
            None => self.queue.send(Piece::End(done)).is_ok() && end.recv().is_ok(),
            Some(patience) => {
                let queued = self.queue.try_send(Piece::End(done)).is_ok();
                queued && end.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
            }
        };
        match self.take_problem() {
            Some(problem) => Err(problem),
            None if settled => Ok(()),
            None => Err(unread()),
        }
    }

    pub(crate) fn writer(&self) -> Spoken {
        BufWriter::with_capacity(LONGEST_PIECE, Handing(self.clone()))
    }

    fn take_problem(&self) -> Option<io::Error> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn unread() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "nobody reads it")
}

fn speak(mut out: impl Write, pieces: &Receiver<Piece>, problem: &Mutex<Option<io::Error>>) {
    for piece in pieces {
        match piece {
            Piece::Words(words) => {
                if let Err(error) = out.write_all(&words).and_then(|()| out.flush()) {
                    *problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
            // Who asked may have lost patience.
            Piece::End(done) => drop(done.send(())),
        }
    }
}

/// Collects what is written and says it when it is flushed, or in pieces of [`LONGEST_PIECE`].
pub(crate) type Spoken = BufWriter<Handing>;

/// Says whatever it is given.
#[derive(Debug)]
pub(crate) struct Handing(Speech);

impl Write for Handing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.say(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error.
pub(crate) fn stderr() -> &'static Speech {
    static STDERR: OnceLock<Speech> = OnceLock::new();
    STDERR.get_or_init(|| Speech::to(io::stderr()))
}

/// Standard output.
pub(crate) fn stdout() -> &'static Speech {
    static STDOUT: OnceLock<Speech> = OnceLock::new();
    STDOUT.get_or_init(|| Speech::to(io::stdout()))
}

/// Says something on standard error. Whoever read it may have gone away; the run goes on.
pub(crate) fn say(words: impl Into<Vec<u8>>) {
    let _ = stderr().say(words);
}

/// Before the process ends: what was said on standard error has been written, or nobody reads it.
pub(crate) fn settle() {
    static GIVEN_UP: AtomicBool = AtomicBool::new(false);
    if !GIVEN_UP.load(Ordering::SeqCst) && stderr().settle(Some(PATIENCE)).is_err() {
        GIVEN_UP.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing until it is let.
    struct Held(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_keeps_nobody_waiting() {
        let (let_go, held) = std::sync::mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let speech = Speech::to(Held(held, written.clone()));
        for _ in 0..MOST_WAITING {
            speech.say("x").unwrap();
        }
        // One may be in the thread's hands; after that nothing fits any more.
        let refused = (0..2).find_map(|_| speech.say("y").err()).expect("too much is waiting");
        assert_eq!(refused.to_string(), "nobody reads it");
        assert!(speech.settle(Some(Duration::from_millis(1))).is_err());
        (0..2 * MOST_WAITING).for_each(|_| let_go.send(()).unwrap());
        speech.settle(None).unwrap();
        assert!(written.lock().unwrap().len() >= MOST_WAITING, "what was taken arrives when somebody reads");
    }

    #[test]
    fn a_reader_that_has_gone_is_told_of_once() {
        let (gone, held) = std::sync::mpsc::channel();
        drop(gone);
        let speech = Speech::to(Held(held, Arc::default()));
        speech.say("x").unwrap();
        assert_eq!(speech.settle(None).unwrap_err().kind(), ErrorKind::BrokenPipe);
        speech.settle(None).unwrap();
    }
}
