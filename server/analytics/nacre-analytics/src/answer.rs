//! Answers: one JSON object in pieces, with the rows before the status, so that clients can read rows as they
//! arrive.

use crate::error::Error;
use crate::processes::Work;
use crate::request::duration_text;
use bytes::Bytes;
use nacre_sql::write_string;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// Part of an answer.
#[derive(Debug)]
pub enum Piece {
    /// The HTTP status, before all bytes.
    Status(u16),
    /// Bytes of the body.
    Bytes(Bytes),
}

/// An answer being written.
pub struct Answer {
    pieces: Sender<Piece>,
    text: String,
    began: Instant,
    began_running: Option<Instant>,
    has_begun: bool,
    row_count: u64,
    row_bytes: u64,
    /// Number of documents read.
    pub processed: u64,
    /// The statement's plan as JSON, for EXPLAIN and diagnostics.
    pub plan: Option<String>,
    /// The work of each process, if there are several.
    pub work: Vec<Work>,
}

impl Answer {
    /// Begins an answer with its IDs.
    pub fn new(pieces: Sender<Piece>, request_id: &str, client_context_id: Option<&str>) -> Answer {
        let mut text = String::from("{\n\"requestID\":");
        write_string(request_id, &mut text);
        if let Some(id) = client_context_id {
            text.push_str(",\n\"clientContextID\":");
            write_string(id, &mut text);
        }
        Answer {
            pieces,
            text,
            began: Instant::now(),
            began_running: None,
            has_begun: false,
            row_count: 0,
            row_bytes: 0,
            processed: 0,
            plan: None,
            work: Vec::new(),
        }
    }

    /// Records that the statement has been planned and starts to run.
    pub fn run(&mut self) {
        self.began_running = Some(Instant::now());
        self.text.push_str(",\n\"signature\":{\"*\":\"*\"},\n\"results\":[");
    }

    /// Writes a row, which is JSON text. Waits while the client reads nothing.
    ///
    /// # Errors
    /// Code 21007 if the client has disconnected.
    pub fn row(&mut self, row: &str) -> Result<(), Error> {
        self.text.push_str(if self.row_count == 0 { "\n" } else { ",\n" });
        self.text.push_str(row);
        self.row_count += 1;
        self.row_bytes += row.len() as u64;
        if self.text.len() >= PIECE_BYTES {
            self.send(200)?;
        }
        Ok(())
    }

    /// Returns the number of rows written.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    fn send(&mut self, status: u16) -> Result<(), Error> {
        let left = |_| Error::cancelled();
        if !self.has_begun {
            self.has_begun = true;
            self.pieces.blocking_send(Piece::Status(status)).map_err(left)?;
        }
        let bytes = Bytes::from(std::mem::take(&mut self.text));
        self.pieces.blocking_send(Piece::Bytes(bytes)).map_err(left)
    }

    /// Ends the answer.
    pub fn end(mut self, outcome: Result<(), Error>) {
        if self.began_running.is_some() {
            self.text.push_str("\n]");
        }
        if let Some(plan) = &self.plan {
            let _ = write!(self.text, ",\n\"plans\":{{\"optimizedLogicalPlan\":{plan}}}");
        }
        let mut status = 200;
        match &outcome {
            Ok(()) => self.text.push_str(",\n\"status\":\"success\""),
            Err(error) => {
                status = error.http_status();
                let _ = write!(self.text, ",\n\"errors\":[{{\"code\":{},\"msg\":", error.code);
                write_string(&error.message, &mut self.text);
                if error.is_retriable() {
                    self.text.push_str(",\"retriable\":true");
                }
                let _ = write!(self.text, "}}],\n\"status\":\"{}\"", error.status());
            }
        }
        self.metrics(outcome.is_err());
        // A client that has disconnected needs no end.
        let _ = self.send(status);
    }

    fn metrics(&mut self, has_failed: bool) {
        let elapsed = self.began.elapsed();
        let running = self.began_running.map_or(Duration::ZERO, |began| began.elapsed());
        let compiling = elapsed.saturating_sub(running);
        let _ = write!(
            self.text,
            ",\n\"metrics\":{{\"elapsedTime\":\"{}\",\"executionTime\":\"{}\",\"compileTime\":\"{}\",\
             \"queueWaitTime\":\"0.000ms\",\"resultCount\":{},\"resultSize\":{},\"processedObjects\":{}",
            duration_text(elapsed),
            duration_text(running),
            duration_text(compiling),
            self.row_count,
            self.row_bytes,
            self.processed,
        );
        if !self.work.is_empty()
            && let Ok(work) = serde_json::to_string(&self.work)
        {
            let _ = write!(self.text, ",\"processes\":{work}");
        }
        self.text.push_str(if has_failed { ",\"errorCount\":1}\n}\n" } else { "}\n}\n" });
    }
}
