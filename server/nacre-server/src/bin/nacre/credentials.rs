//! Passwords on the command line, for all commands in one way.
//!
//! A password in an argument is seen by everybody on the machine, for as long as the process runs (`ps`, `/proc/PID/cmdline`). It is
//! overwritten there as soon as the process has begun, which leaves an instant; `NACRE_PASSWORD` and `--password-file` leave none.

use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The variable that all commands take the password from.
const VARIABLE: &str = "NACRE_PASSWORD";
/// The largest file that is read for a password, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Byte that replaces those of a password.
const COVER: u8 = b'x';

/// Overwrites the passwords among the arguments of this process, for others that list processes.
///
/// To be called by the only thread, once the arguments were copied.
pub fn hide() {
    // If the system does not report the place of the arguments, they stay.
    let Some((start, length)) = place_of_arguments() else { return };
    // SAFETY: the kernel says that the arguments of this process are there, in memory that it may write to. The standard library has
    // no reference to them: it copies them whenever they are asked for, and no other thread runs that could ask.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, length) };
    cover(bytes);
}

/// Covers the values of options whose names end with `password` or `token`, in arguments that end with a zero each.
fn cover(bytes: &mut [u8]) {
    let mut is_next = false;
    for argument in bytes.split_mut(|byte| *byte == 0) {
        let name_bytes = argument.iter().position(|byte| *byte == b'=').unwrap_or(argument.len());
        let name = &argument[..name_bytes];
        let is_option =
            name.starts_with(b"--") && (name.ends_with(b"password") || name.ends_with(b"token"));
        if std::mem::take(&mut is_next) {
            argument.fill(COVER);
        } else if is_option && name_bytes < argument.len() {
            argument[name_bytes + 1..].fill(COVER);
        } else {
            is_next = is_option;
        }
    }
}

/// Returns the place and the length of this process's arguments in its memory.
fn place_of_arguments() -> Option<(usize, usize)> {
    let mut text = String::new();
    File::open("/proc/self/stat").ok()?.read_to_string(&mut text).ok()?;
    // The name of the program, in brackets, may hold anything. Source: proc(5): arg_start is the 48th field, arg_end the 49th.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(48 - 3);
    let start: usize = fields.next()?.parse().ok()?;
    let end: usize = fields.next()?.parse().ok()?;
    (start != 0 && end > start).then(|| (start, end - start))
}

/// Reads the password from the file of `--password-file FILE`, as if it were in `NACRE_PASSWORD`; `-` reads a line of standard input,
/// which a terminal does not show.
///
/// Must be called while the process has one thread, before the command line is parsed.
///
/// # Errors
/// Fails when the file cannot be read, with a sentence for the user.
pub fn read_file(arguments: &[OsString]) -> Result<(), String> {
    let Some(file) = file_of(arguments) else { return Ok(()) };
    let path = Path::new(&file);
    let text = if path == Path::new("-") { ask() } else { read(path) };
    let text =
        text.map_err(|error| format!("cannot read the password from {}: {error}", path.display()))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var(VARIABLE, password) };
    Ok(())
}

fn file_of(arguments: &[OsString]) -> Option<OsString> {
    value_of(arguments, "--password-file", "NACRE_PASSWORD_FILE")
}

/// Returns the value of an option among unparsed arguments, or that of its variable.
pub fn value_of(arguments: &[OsString], option: &str, variable: &str) -> Option<OsString> {
    let mut arguments = arguments.iter().take_while(|argument| *argument != "--");
    while let Some(argument) = arguments.next() {
        if argument == option {
            return arguments.next().cloned();
        }
        if let Some(value) = argument.as_bytes().strip_prefix(format!("{option}=").as_bytes()) {
            return Some(std::ffi::OsStr::from_bytes(value).to_owned());
        }
    }
    std::env::var_os(variable).filter(|file| !file.is_empty())
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a line of standard input, which a terminal does not show.
fn ask() -> std::io::Result<String> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return rpassword::prompt_password("Password: ");
    }
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_and_other_arguments_are_not() {
        let covered = |text: &str| {
            let mut bytes = text.replace(' ', "\0").into_bytes();
            cover(&mut bytes);
            String::from_utf8(bytes).unwrap().replace('\0', " ")
        };
        assert_eq!(
            covered("nacre serve --password top --host h"),
            "nacre serve --password xxx --host h"
        );
        assert_eq!(covered("nacre mcp --token abc"), "nacre mcp --token xxx");
        assert_eq!(covered("nacre sh --password=a=b -e x"), "nacre sh --password=xxx -e x");
        assert_eq!(covered("a --other-password p --password"), "a --other-password x --password");
        assert_eq!(covered("a --password-file f password p"), "a --password-file f password p");
    }

    #[test]
    fn the_place_of_the_arguments_is_found() {
        let (start, length) = place_of_arguments().unwrap();
        assert!(start > 0 && length >= std::env::args_os().next().unwrap().len());
    }

    #[test]
    fn the_file_is_named_in_either_form() {
        let file =
            |arguments: &[&str]| file_of(&arguments.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(file(&["sh", "--password-file", "f"]), Some("f".into()));
        assert_eq!(file(&["sh", "--password-file=f"]), Some("f".into()));
        assert_eq!(file(&["sh", "--", "--password-file", "f"]), None);
    }
}
