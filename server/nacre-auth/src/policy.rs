//! Rules for new passwords.

use serde::{Deserialize, Serialize};

/// An operator's rules for new passwords. Source: names, defaults and texts are those of Couchbase's REST API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PasswordPolicy {
    /// The minimum number of characters.
    pub min_length: usize,
    /// True to require an upper-case letter.
    pub enforce_uppercase: bool,
    /// True to require a lower-case letter.
    pub enforce_lowercase: bool,
    /// True to require a digit.
    pub enforce_digits: bool,
    /// True to require one of `@%+\/'"!#$^?:,(){}[]~\`-_`.
    pub enforce_special_chars: bool,
}

/// A rule: whether it applies, the characters that satisfy it, and their name.
type Rule = (bool, fn(char) -> bool, &'static str);

/// Special characters.
const SPECIAL: &str = "@%+\\/'\"!#$^?:,(){}[]~`-_";

impl Default for PasswordPolicy {
    fn default() -> PasswordPolicy {
        PasswordPolicy {
            min_length: 6,
            enforce_uppercase: false,
            enforce_lowercase: false,
            enforce_digits: false,
            enforce_special_chars: false,
        }
    }
}

impl PasswordPolicy {
    /// Checks `password` against the rules.
    ///
    /// # Errors
    /// The violated rule, for the person who chose the password.
    pub fn check(&self, password: &str) -> Result<(), String> {
        if password.chars().count() < self.min_length {
            return Err(format!(
                "The password must be at least {} characters long.",
                self.min_length
            ));
        }
        let rules: [Rule; 4] = [
            (self.enforce_uppercase, char::is_uppercase, "uppercase letter"),
            (self.enforce_lowercase, char::is_lowercase, "lowercase letter"),
            (self.enforce_digits, |character| character.is_ascii_digit(), "digit"),
            (
                self.enforce_special_chars,
                |character| SPECIAL.contains(character),
                "special character",
            ),
        ];
        for (enforced, fits, what) in rules {
            if enforced && !password.chars().any(fits) {
                return Err(format!("The password must contain at least one {what}."));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_password_gets_the_missing_requirement() {
        let strict = PasswordPolicy {
            min_length: 8,
            enforce_uppercase: true,
            enforce_lowercase: true,
            enforce_digits: true,
            enforce_special_chars: true,
        };
        let lacks = |password: &str| strict.check(password).err().unwrap_or_default();
        assert_eq!(lacks("Ab1!xyz"), "The password must be at least 8 characters long.");
        assert_eq!(lacks("ab1!xyzz"), "The password must contain at least one uppercase letter.");
        assert_eq!(lacks("AB1!XYZZ"), "The password must contain at least one lowercase letter.");
        assert_eq!(lacks("Abc!xyzz"), "The password must contain at least one digit.");
        assert_eq!(lacks("Abc1xyzz"), "The password must contain at least one special character.");
        assert_eq!(lacks("Abc1!yzz"), "");
        assert_eq!(PasswordPolicy::default().check("secret"), Ok(()));
    }
}
