//! Writes output on a thread of its own, so that a pipe without a reader or a stopped terminal
//! never blocks the run. The queue is bounded: when it is full, writes fail. Used for standard
//! output, standard error and pipes.

use std::{
    io::{self, BufWriter, ErrorKind, Write},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

/// Most queued writes, about an hour of progress lines; further writes fail.
const MAX_QUEUED: usize = 4096;
/// Size of the buffer in front of the queue.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long the last flush waits for a reader.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle of the writer thread. Clones share the thread.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundWriter {
    queue: SyncSender<WriterMessage>,
    error: Arc<Mutex<Option<io::Error>>>,
}

#[derive(Debug)]
enum WriterMessage {
    Bytes(Vec<u8>),
    /// Acknowledged when everything before it has been written.
    Flush(SyncSender<()>),
}

impl BackgroundWriter {
    pub(crate) fn spawn(out: impl Write + Send + 'static) -> BackgroundWriter {
        let (queue, messages) = sync_channel(MAX_QUEUED);
        let error: Arc<Mutex<Option<io::Error>>> = Arc::default();
        let last_error = error.clone();
        std::thread::spawn(move || write_queued(out, &messages, &last_error));
        BackgroundWriter { queue, error }
    }

    /// Queues `bytes`. Fails if the queue is full or if an earlier write failed.
    pub(crate) fn enqueue(&self, bytes: impl Into<Vec<u8>>) -> io::Result<()> {
        match self.take_error() {
            Some(error) => Err(error),
            None => self.queue.try_send(WriterMessage::Bytes(bytes.into())).map_err(|_| unread_error()),
        }
    }

    /// Waits until everything has been written, at most `timeout`.
    pub(crate) fn flush(&self, timeout: Option<Duration>) -> io::Result<()> {
        let (done, acknowledged) = sync_channel(1);
        let flushed = match timeout {
            // Also waits while the queue is full.
            None => self.queue.send(WriterMessage::Flush(done)).is_ok() && acknowledged.recv().is_ok(),
            Some(timeout) => {
                let queued = self.queue.try_send(WriterMessage::Flush(done)).is_ok();
                queued && acknowledged.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout)
            }
        };
        match self.take_error() {
            Some(error) => Err(error),
            None if flushed => Ok(()),
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
    io::Error::new(ErrorKind::TimedOut, "its reader does not read")
}

fn write_queued(mut out: impl Write, messages: &Receiver<WriterMessage>, last_error: &Mutex<Option<io::Error>>) {
    for message in messages {
        match message {
            WriterMessage::Bytes(bytes) => {
                if let Err(error) = out.write_all(&bytes).and_then(|()| out.flush()) {
                    *last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
            // Fails if `flush` has timed out.
            WriterMessage::Flush(done) => drop(done.send(())),
        }
    }
}

/// Buffers writes and queues them at a flush, or when [`BUFFER_BYTES`] are full.
pub(crate) type BufferedWriterHandle = BufWriter<WriterHandle>;

/// Queues every write.
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

/// Started by the first text.
static STDERR: OnceLock<BackgroundWriter> = OnceLock::new();

/// Standard error.
pub(crate) fn stderr() -> &'static BackgroundWriter {
    STDERR.get_or_init(|| BackgroundWriter::spawn(io::stderr()))
}

/// Standard output.
pub(crate) fn stdout() -> &'static BackgroundWriter {
    static STDOUT: OnceLock<BackgroundWriter> = OnceLock::new();
    STDOUT.get_or_init(|| BackgroundWriter::spawn(io::stdout()))
}

/// Prints on standard error. Errors are ignored: a closed standard error must not end the run.
pub(crate) fn print_stderr(bytes: impl Into<Vec<u8>>) {
    let bytes = bytes.into();
    if !bytes.is_empty() {
        let _ = stderr().enqueue(bytes);
    }
}

/// Waits until standard error has been written, before the process ends. After one timeout it does
/// not wait again.
pub(crate) fn flush_stderr() {
    static TIMED_OUT: AtomicBool = AtomicBool::new(false);
    let Some(stderr) = STDERR.get() else { return };
    if !TIMED_OUT.load(Ordering::SeqCst) && stderr.flush(Some(FLUSH_TIMEOUT)).is_err() {
        TIMED_OUT.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks each write until a message arrives.
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
    fn full_queue_fails_writes_instead_of_blocking() {
        let (release, blocked) = std::sync::mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = BackgroundWriter::spawn(BlockedWriter(blocked, written.clone()));
        for _ in 0..MAX_QUEUED {
            writer.enqueue("x").unwrap();
        }
        // The thread may hold one message; after that the queue is full.
        let error = (0..2).find_map(|_| writer.enqueue("y").err()).expect("the queue is full");
        assert_eq!(error.to_string(), "its reader does not read");
        assert!(writer.flush(Some(Duration::from_millis(1))).is_err());
        (0..2 * MAX_QUEUED).for_each(|_| release.send(()).unwrap());
        writer.flush(None).unwrap();
        assert!(written.lock().unwrap().len() >= MAX_QUEUED, "queued bytes are lost");
    }

    #[test]
    fn closed_reader_is_reported_once() {
        let (closed, blocked) = std::sync::mpsc::channel();
        drop(closed);
        let writer = BackgroundWriter::spawn(BlockedWriter(blocked, Arc::default()));
        writer.enqueue("x").unwrap();
        assert_eq!(writer.flush(None).unwrap_err().kind(), ErrorKind::BrokenPipe);
        writer.flush(None).unwrap();
    }
}
