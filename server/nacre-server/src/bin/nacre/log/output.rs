//! The destination of the log: standard error, which may be a pipe whose reader has stopped or has ended.
//!
//! A write to a full pipe waits for its reader, and every thread that logs would wait with it. So the node writes only as much as the
//! pipe takes at once. It waits [`PATIENCE_MS`] for the first line, then leaves out and counts lines until somebody reads again:
//!
//! ```text
//! 2026-12-01T10:00:00Z  WARN nobody has read the log of this node: 812 lines are lost; write it to a file, or to journald
//! ```

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};

/// Time for which a line waits for a reader, in milliseconds.
const PATIENCE_MS: libc::c_int = 100;
/// Bytes that a pipe takes without waiting, when it can be written to. Source: pipe(7), `PIPE_BUF`.
const PIECE_BYTES: usize = 4096;

/// A log that waits for no reader.
pub struct Output<W> {
    inner: W,
    /// Makes the line that counts lost lines.
    note: fn(u64) -> String,
    /// Lines that were not written, or not completely.
    lost: u64,
    /// True if the last line was not written to its end.
    is_cut: bool,
}

impl<W: Write + AsFd> Output<W> {
    /// Creates a log that goes to `inner`; `note` makes the line that counts lost lines.
    pub fn new(inner: W, note: fn(u64) -> String) -> Output<W> {
        Output { inner, note, lost: 0, is_cut: false }
    }

    /// Returns true if a write of [`PIECE_BYTES`] does not wait, or fails at once.
    fn is_writable(&self, patience_ms: libc::c_int) -> bool {
        let fd = self.inner.as_fd().as_raw_fd();
        let mut entry = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        loop {
            // SAFETY: there is one entry, and it outlives the call.
            match unsafe { libc::poll(&raw mut entry, 1, patience_ms) } {
                0 => return false,
                -1 if io::Error::last_os_error().kind() == ErrorKind::Interrupted => {}
                _ => return true,
            }
        }
    }

    /// Writes a line, after the number of those that were lost before it. Returns false if it is lost, too.
    fn put(&mut self, line: &[u8]) -> bool {
        let patience_ms = if self.lost == 0 { PATIENCE_MS } else { 0 };
        if !self.is_writable(patience_ms) {
            return false;
        }
        if self.lost > 0 {
            let end_of_cut = if self.is_cut { "\n" } else { "" };
            let note = format!("{end_of_cut}{}", (self.note)(self.lost));
            if self.inner.write_all(note.as_bytes()).is_err() {
                return false;
            }
            (self.lost, self.is_cut) = (0, false);
        }
        for (index, piece) in line.chunks(PIECE_BYTES).enumerate() {
            if !self.is_writable(PATIENCE_MS) || self.inner.write_all(piece).is_err() {
                self.is_cut = index > 0;
                return false;
            }
        }
        true
    }
}

impl<W: Write + AsFd> Write for Output<W> {
    /// Takes a whole line. Never fails: there is no other place that could show the failure.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.put(line) {
            self.lost += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn note(lost: u64) -> String {
        format!("{lost} lost\n")
    }

    /// Reads so many bytes, which must be in the pipe.
    fn read(reader: &mut impl Read, bytes: usize) -> String {
        let mut text = vec![0; bytes];
        reader.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_log_that_nobody_reads_stops_nobody_and_counts_its_lost_lines() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Output::new(writer, note);
        let line = format!("{}\n", "x".repeat(1023));
        // Each write returns although nobody reads, and most lines do not fit into the pipe.
        for _ in 0..2000 {
            log.write_all(line.as_bytes()).unwrap();
        }
        let lost = log.lost;
        assert!((1..2000).contains(&lost), "{lost}");
        let written = usize::try_from(2000 - lost).unwrap();
        assert_eq!(read(&mut reader, written * line.len()), line.repeat(written));
        log.write_all(b"next\n").unwrap();
        let expected = format!("{lost} lost\nnext\n");
        assert_eq!(read(&mut reader, expected.len()), expected);
        assert_eq!(log.lost, 0);
    }

    #[test]
    fn a_line_that_is_cut_is_ended_before_the_next_one() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Output::new(writer, note);
        // More than any pipe holds.
        let line = "y".repeat(8 << 20);
        log.write_all(line.as_bytes()).unwrap();
        assert!(log.is_cut && log.lost == 1);
        let mut some = vec![0; 64 << 10];
        let count = reader.read(&mut some).unwrap();
        assert!(count > 0 && some[..count].iter().all(|byte| *byte == b'y'));
        log.write_all(b"next\n").unwrap();
        drop(log);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest.trim_start_matches('y'), "\n1 lost\nnext\n");
    }

    #[test]
    fn a_reader_that_has_ended_ends_nobody() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut log = Output::new(writer, note);
        for _ in 0..3 {
            log.write_all(b"line\n").unwrap();
        }
        assert_eq!(log.lost, 3);
    }
}
