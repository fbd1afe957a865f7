//! Names that can be used in paths and file names without encoding.

/// The maximum length of the name of a plugin's package or deployment, in bytes. The name becomes part of paths and
/// thread names.
pub const PLUGIN_NAME_BYTES_MAX: usize = 64;

/// Checks that `name` consists of letters, digits, `-` and `_`, begins with a letter or digit, and has 1 to `bytes_max`
/// characters.
///
/// # Errors
/// The reason, for the person who chose the name.
pub fn check_plain_name(name: &str, bytes_max: usize) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts_well && name.len() <= bytes_max && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(format!(
        "{name:?} cannot be a name: 1 to {bytes_max} letters, digits, '-' and '_', a letter or digit first"
    ))
}
