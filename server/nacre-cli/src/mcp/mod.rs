//! `nacre mcp`: a Model Context Protocol server on standard input and output, through which agents explore a cluster.
//!
//! ```text
//! agent ─ lines of JSON-RPC ─► protocol ─► tools::TOOLS ─► calls ─► HTTP of a node, as the user
//! ```
//!
//! Each tool sends one or a few requests to a node with the login of the command line, so an agent has exactly the rights of that
//! user. Without `--allow-writes` there are no tools that change anything, and statements are sent with `readonly=true`, which
//! the node enforces. There are no tools for users, buckets or failovers.
//!
//! Documents are untrusted data: answers with documents begin with a sentence that says so, and have a maximum size, see
//! [`answer`].

mod answer;
mod calls;
mod protocol;
mod tools;

use crate::failure::Failure;
use crate::target::Server;
use clap::Args;
use protocol::{Call, Conversation, Incoming};
use std::io::{self, BufRead, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum size of a message that is read, in bytes.
const MESSAGE_BYTES_MAX: usize = 24 << 20;
/// Maximum number of concurrent tool calls.
const CALLS_MAX: usize = 8;

/// Options of `nacre mcp`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    server: Server,
    /// Offer tools that store and remove documents as well
    #[arg(long)]
    allow_writes: bool,
}

/// Runs `nacre mcp` until standard input ends.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    // Fails here, where a person sees the error, instead of at an agent's first question.
    options.server.rest(&options.server.address()?.to_string())?;
    let conversation = Conversation { allow_writes: options.allow_writes };
    serve(&conversation, &options.server, &mut io::stdin().lock(), &Mutex::new(io::stdout()))
        .map_err(|error| format!("the conversation with the agent broke: {error}").into())
}

/// Answers messages until the input and all calls have ended.
fn serve(
    conversation: &Conversation,
    server: &Server,
    input: &mut dyn BufRead,
    output: &Mutex<impl Write + Send>,
) -> io::Result<()> {
    let running = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|threads| {
        while let Some(line) = read_line(input)? {
            let Incoming::Call(call) = conversation.receive(&line) else { continue };
            let answer = match call {
                Call::Answered(answer) => answer,
                Call::Tool(tool) if running.load(Ordering::Acquire) < CALLS_MAX => {
                    running.fetch_add(1, Ordering::AcqRel);
                    let running = Arc::clone(&running);
                    // Requests to the node block, and a slow one must not delay the answers to others.
                    threads.spawn(move || {
                        let answer = tool.run(server);
                        running.fetch_sub(1, Ordering::AcqRel);
                        // An agent that has disconnected reads no answers; the end of its input ends the conversation.
                        let _ = write_line(output, &answer.to_string());
                    });
                    continue;
                }
                Call::Tool(tool) => tool.refuse("too many calls at a time: wait for one"),
            };
            write_line(output, &answer.to_string())?;
        }
        Ok(())
    })
}

/// Reads a message; `None` at the end of the input.
fn read_line(input: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(MESSAGE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    if line.len() > MESSAGE_BYTES_MAX {
        let reason = format!("a message has more than {MESSAGE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok((!line.is_empty()).then_some(line))
}

fn write_line(output: &Mutex<impl Write>, line: &str) -> io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.write_all(format!("{line}\n").as_bytes())?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_ends_with_its_input_and_answers_each_request_once() {
        let input = concat!(
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n",
            "\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n",
            "nonsense\n",
            "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"none\"}"
        );
        let server = Server::new("http://127.0.0.1:1", "u", "p").unwrap();
        let output = Mutex::new(Vec::new());
        let conversation = Conversation { allow_writes: false };
        serve(&conversation, &server, &mut input.as_bytes(), &output).unwrap();
        let text = String::from_utf8(output.into_inner().unwrap()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0]["result"], serde_json::json!({}));
        assert_eq!(lines[1]["error"]["code"], -32700);
        assert_eq!((&lines[2]["id"], &lines[2]["error"]["code"]), (&2.into(), &(-32601).into()));
    }

    #[test]
    fn an_unreachable_node_is_reported_by_the_tool() {
        let call = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"list_keyspaces"}}"#;
        let server = Server::new("http://127.0.0.1:1", "u", "p").unwrap();
        let output = Mutex::new(Vec::new());
        serve(&Conversation { allow_writes: false }, &server, &mut call.as_bytes(), &output)
            .unwrap();
        let text = String::from_utf8(output.into_inner().unwrap()).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&"a".into(), &true.into()));
    }
}
