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
const MAX_QUEUED: usize = 4096;
/// So much is said at once, at most.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long a reader that does not read is waited for at the end.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Somewhere to speak to. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundWriter {
    queue: SyncSender<WriterMessage>,
    error: Arc<Mutex<Option<io::Error>>>,
}

#[derive(Debug)]
enum WriterMessage {
    Bytes(Vec<u8>),
    /// Everything before this has been written.
    Flush(SyncSender<()>),
}

impl BackgroundWriter {
    pub(crate) fn spawn(out: impl Write + Send + 'static) -> BackgroundWriter {
        let (queue, pieces) = sync_channel(MAX_QUEUED);
        let problem: Arc<Mutex<Option<io::Error>>> = Arc::default();
        let found = problem.clone();
        std::thread::spawn(move || write_queued(out, &pieces, &found));
        BackgroundWriter { queue, error: problem }
    }

    /// Hands `words` over. An error if too much is waiting already, or if something could not be written before.
    pub(crate) fn enqueue(&self, words: impl Into<Vec<u8>>) -> io::Result<()> {
        match self.take_error() {
            Some(problem) => Err(problem),
            None => self.queue.try_send(WriterMessage::Bytes(words.into())).map_err(|_| unread_error()),
        }
    }

    /// Waits until everything has been written, or `patience` is over; as long as it takes if there is none.
    pub(crate) fn flush(&self, patience: Option<Duration>) -> io::Result<()> {
        let (done, end) = sync_channel(1);
        let settled = match patience {
            // Blocks while the queue is full, too.
            None => self.queue.send(WriterMessage::Flush(done)).is_ok() && end.recv().is_ok(),
            Some(patience) => {
                let queued = self.queue.try_send(WriterMessage::Flush(done)).is_ok();
                queued && end.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
            }
        };
        match self.take_error() {
            Some(problem) => Err(problem),
            None if settled => Ok(()),
            None => Err(unread_error()),
        }
    }

    pub(crate) fn writer(&self) -> BufferedWriterHandle {
        BufWriter::with_capacity(BUFFER_BYTES, WriterHandle(self.clone()))
    }

    fn take_error(&self) -> Option<io::Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn unread_error() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "nobody reads it")
}

fn write_queued(mut out: impl Write, pieces: &Receiver<WriterMessage>, problem: &Mutex<Option<io::Error>>) {
    for piece in pieces {
        match piece {
            WriterMessage::Bytes(words) => {
                if let Err(error) = out.write_all(&words).and_then(|()| out.flush()) {
                    *problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
            // Who asked may have lost patience.
            WriterMessage::Flush(done) => drop(done.send(())),
        }
    }
}

/// Collects what is written and says it when it is flushed, or in pieces of [`LONGEST_PIECE`].
pub(crate) type BufferedWriterHandle = BufWriter<WriterHandle>;

/// Says whatever it is given.
#[derive(Debug)]
pub(crate) struct WriterHandle(BackgroundWriter);

impl Write for WriterHandle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.enqueue(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error.
pub(crate) fn stderr() -> &'static BackgroundWriter {
    static STDERR: OnceLock<BackgroundWriter> = OnceLock::new();
    STDERR.get_or_init(|| BackgroundWriter::spawn(io::stderr()))
}

/// Standard output.
pub(crate) fn stdout() -> &'static BackgroundWriter {
    static STDOUT: OnceLock<BackgroundWriter> = OnceLock::new();
    STDOUT.get_or_init(|| BackgroundWriter::spawn(io::stdout()))
}

/// Says something on standard error. Whoever read it may have gone away; the run goes on.
pub(crate) fn print_stderr(words: impl Into<Vec<u8>>) {
    let _ = stderr().enqueue(words);
}

/// Before the process ends: what was said on standard error has been written, or nobody reads it.
pub(crate) fn flush_stderr() {
    static GIVEN_UP: AtomicBool = AtomicBool::new(false);
    if !GIVEN_UP.load(Ordering::SeqCst) && stderr().flush(Some(FLUSH_TIMEOUT)).is_err() {
        GIVEN_UP.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing until it is let.
    struct BlockedWriter(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for BlockedWriter {
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
        let speech = BackgroundWriter::spawn(BlockedWriter(held, written.clone()));
        for _ in 0..MAX_QUEUED {
            speech.enqueue("x").unwrap();
        }
        // One may be in the thread's hands; after that nothing fits any more.
        let refused = (0..2).find_map(|_| speech.enqueue("y").err()).expect("too much is waiting");
        assert_eq!(refused.to_string(), "nobody reads it");
        assert!(speech.flush(Some(Duration::from_millis(1))).is_err());
        (0..2 * MAX_QUEUED).for_each(|_| let_go.send(()).unwrap());
        speech.flush(None).unwrap();
        assert!(written.lock().unwrap().len() >= MAX_QUEUED, "what was taken arrives when somebody reads");
    }

    #[test]
    fn a_reader_that_has_gone_is_told_of_once() {
        let (gone, held) = std::sync::mpsc::channel();
        drop(gone);
        let speech = BackgroundWriter::spawn(BlockedWriter(held, Arc::default()));
        speech.enqueue("x").unwrap();
        assert_eq!(speech.flush(None).unwrap_err().kind(), ErrorKind::BrokenPipe);
        speech.flush(None).unwrap();
    }
}
