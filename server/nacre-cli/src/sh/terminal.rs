//! The interactive shell: a line editor with history, completion and hints around a [`Session`].

use super::complete::Words;
use super::session::{Session, Stop};
use super::split::{Kind, Splitter, first_word};
use parking_lot::Mutex;
use reedline::{
    ColumnarMenu, Completer, CompletionResult, DefaultHinter, Emacs, FileBackedHistory, KeyCode,
    KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch, Reedline,
    ReedlineEvent, ReedlineMenu, Signal, Span, Suggestion, ValidationResult, Validator,
    default_emacs_keybindings,
};
use std::borrow::Cow;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of history entries.
const HISTORY_COUNT_MAX: usize = 10_000;
const MENU: &str = "completion";

/// Output that drops bytes after Ctrl-C until the next statement, so that a long result ends.
pub struct Silenced<W> {
    out: W,
    interrupted: Arc<AtomicBool>,
}

impl<W: Write> Silenced<W> {
    /// Returns an output to `out` that writes unless `interrupted` is set.
    pub fn new(out: W, interrupted: Arc<AtomicBool>) -> Silenced<W> {
        Silenced { out, interrupted }
    }
}

impl<W: Write> Write for Silenced<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Ok(bytes.len()),
            false => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads and runs the user's input until the user quits. Ctrl-C sets `interrupted`, which stops a statement.
///
/// # Errors
/// The reason, if the terminal cannot be read, or the node does not answer or refuses the login.
pub fn run_terminal(
    session: &mut Session<'_>,
    greeting: &str,
    interrupted: &Arc<AtomicBool>,
) -> Result<(), String> {
    let words = Arc::new(Mutex::new(Words::new()));
    let mut editor = editor(Arc::clone(&words));
    words.lock().set_keyspaces(&session.keyspaces()?);
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(interrupted))
        .map_err(|error| format!("cannot wait for Ctrl-C: {error}"))?;
    let cannot_write = |error: io::Error| format!("cannot write: {error}");
    let hint = "\\help lists the commands, Ctrl-D ends.";
    writeln!(io::stdout(), "{greeting} {hint}").map_err(cannot_write)?;
    let outcome = read_statements(session, &mut editor, &words, interrupted);
    match session.end_transaction() {
        Ok(()) | Err(Stop::Failed | Stop::Quit) => outcome,
        Err(Stop::Closed(error)) => Err(cannot_write(error)),
    }
}

fn read_statements(
    session: &mut Session<'_>,
    editor: &mut Reedline,
    words: &Mutex<Words>,
    interrupted: &AtomicBool,
) -> Result<(), String> {
    loop {
        let context = session.settings.context.as_ref().map(|context| context.path());
        let mut name = context.unwrap_or_else(|| "nacre".to_owned());
        if session.is_in_transaction() {
            name.push_str(" (transaction)");
        }
        let text = match editor.read_line(&Name(name)) {
            Ok(Signal::Success(text)) => text,
            Ok(Signal::CtrlD) => return Ok(()),
            Ok(_) => continue,
            Err(error) => return Err(format!("cannot read from the terminal: {error}")),
        };
        interrupted.store(false, Ordering::Relaxed);
        // Saved now, because a killed process saves nothing. The file may not be writable.
        let _ = editor.sync_history();
        match session.run_script("", &mut text.as_bytes()) {
            Ok(()) | Err(Stop::Failed) => {}
            Err(Stop::Quit) => return Ok(()),
            Err(Stop::Closed(error)) => return Err(format!("cannot write: {error}")),
        }
        if defines(&text) {
            words.lock().set_keyspaces(&session.keyspaces().unwrap_or_default());
        }
    }
}

/// Returns true if the text may create or drop keyspaces.
fn defines(text: &str) -> bool {
    let mut splitter = Splitter::new();
    splitter.push(text);
    std::iter::from_fn(|| splitter.next()).any(|piece| match piece.kind {
        Kind::Statement(text) => matches!(first_word(&text).as_str(), "CREATE" | "DROP"),
        Kind::Command(text) => text.starts_with("source"),
    })
}

fn editor(words: Arc<Mutex<Words>>) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let complete = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
    let menu = ColumnarMenu::default().with_name(MENU);
    let editor = Reedline::create()
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_validator(Box::new(Complete))
        .with_completer(Box::new(FromWords(words)))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
        .with_hinter(Box::new(DefaultHinter::default()))
        .with_quick_completions(true)
        .with_partial_completions(true);
    match history() {
        Some(history) => editor.with_history(Box::new(history)),
        None => editor,
    }
}

/// Returns the history of earlier shells; `None` if there is no place for it.
fn history() -> Option<FileBackedHistory> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    FileBackedHistory::with_file(HISTORY_COUNT_MAX, state.join("nacre/history")).ok()
}

/// Statements end with `;`: until then, Enter continues on the next line.
struct Complete;

impl Validator for Complete {
    fn validate(&self, text: &str) -> ValidationResult {
        let mut splitter = Splitter::new();
        splitter.push(text);
        splitter.push("\n");
        while splitter.next().is_some() {}
        match splitter.is_between() {
            true => ValidationResult::Complete,
            false => ValidationResult::Incomplete,
        }
    }
}

struct FromWords(Arc<Mutex<Words>>);

impl Completer for FromWords {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let Some(before) = line.get(..position) else { return CompletionResult::fresh(Vec::new()) };
        let found = self.0.lock().complete(before);
        let suggestions = found.into_iter().map(|completion| Suggestion {
            value: completion.text,
            span: Span::new(completion.start, position),
            append_whitespace: completion.is_whole,
            ..Suggestion::default()
        });
        CompletionResult::fresh(suggestions.collect::<Vec<_>>())
    }
}

/// The prompt, which names the context.
struct Name(String);

impl Prompt for Name {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Owned(format!("{:>1$}", "-> ", self.0.chars().count() + 2))
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(history: {}) ", search.term))
    }
}
