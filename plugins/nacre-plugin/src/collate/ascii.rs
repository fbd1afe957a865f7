//! Sort keys of ASCII text.
//!
//! In the root collation, ASCII characters do not combine with their neighbours, and all have the common secondary weight. So
//! the key follows from the weights of the single characters, for which the collator is asked once:
//!
//! ```text
//! primary weights, some bytes each; a compressible first byte is not repeated while it stays the same
//! 01, the number of characters
//! 01, tertiary weights (upper case), and the number of common weights between them
//! ```
//!
//! Source: sort keys of ICU; the reference of the Unicode collation algorithm (UTS #10, section 9) leaves their form to
//! implementations.

use super::collator;
use std::sync::LazyLock;

const LEVEL_SEPARATOR: u8 = 1;
const MERGE_SEPARATOR: u8 = 2;
/// Bytes that end a compressed first byte before a lower one, and before a higher one.
const COMPRESSION_LOW: u8 = 3;
const COMPRESSION_HIGH: u8 = 0xff;

/// The encoding of a run of common weights: `middle` for each `count_max` weights; the remaining count is added to `low` at the
/// end of the level, and subtracted from `high` before a higher weight.
struct Run {
    low: u8,
    middle: u8,
    high: u8,
    count_max: usize,
}

const SECONDARY: Run = Run { low: 0x05, middle: 0x25, high: 0x45, count_max: 0x21 };
const TERTIARY: Run = Run { low: 0x05, middle: 0x65, high: 0xc5, count_max: 0x61 };

impl Run {
    fn write(&self, count: usize, before_higher: bool, out: &mut Vec<u8>) {
        let Some(mut rest) = count.checked_sub(1) else { return };
        while rest >= self.count_max {
            out.push(self.middle);
            rest -= self.count_max;
        }
        let rest = rest as u8;
        out.push(if before_higher { self.high - rest } else { self.low + rest });
    }
}

/// The weights of a character.
#[derive(Clone, Copy, Default)]
struct Weights {
    /// Up to four bytes in big-endian order; 0 for a character that needs the collator.
    primary: u32,
    is_compressible: bool,
    /// One byte; 0 for the common weight.
    tertiary: u8,
}

static WEIGHTS: LazyLock<[Weights; 128]> =
    LazyLock::new(|| std::array::from_fn(|byte| weights(byte as u8).unwrap_or_default()));

fn weights(byte: u8) -> Option<Weights> {
    let key_of = |text: &str| {
        let mut key = Vec::new();
        let Ok(()) = collator().write_sort_key_to(text, &mut key);
        key
    };
    let text = char::from(byte).to_string();
    let key = key_of(&text);
    let mut levels = key.split(|&byte| byte == LEVEL_SEPARATOR);
    let (primary, secondary, tertiary) = (levels.next()?, levels.next()?, levels.next()?);
    let tertiary = match tertiary {
        [common] if *common == TERTIARY.low => 0,
        [higher] if *higher > TERTIARY.high => *higher,
        _ => return None,
    };
    if secondary != [SECONDARY.low] || !(1..=4).contains(&primary.len()) {
        return None;
    }
    let mut bytes = [0; 4];
    bytes[..primary.len()].copy_from_slice(primary);
    let twice = key_of(&text.repeat(2));
    let is_compressible =
        twice.split(|&byte| byte == LEVEL_SEPARATOR).next()?.len() < 2 * primary.len();
    Some(Weights { primary: u32::from_be_bytes(bytes), is_compressible, tertiary })
}

/// Appends the sort key of `text`. Returns false, with `out` unchanged, if the text needs the collator.
pub fn write_sort_key(text: &str, out: &mut Vec<u8>) -> bool {
    let (all, start) = (&*WEIGHTS, out.len());
    let mut before = 0u32;
    for &byte in text.as_bytes() {
        let weights = all.get(usize::from(byte)).copied().unwrap_or_default();
        let [first, rest @ ..] = weights.primary.to_be_bytes();
        if first == 0 {
            out.truncate(start);
            return false;
        }
        if !weights.is_compressible || first != before.to_be_bytes()[0] {
            if before != 0 && weights.primary >= before {
                out.push(COMPRESSION_HIGH);
            } else if before != 0 && first > MERGE_SEPARATOR {
                out.push(COMPRESSION_LOW);
            }
            out.push(first);
            before = if weights.is_compressible { weights.primary } else { 0 };
        }
        out.extend(rest.into_iter().take_while(|&byte| byte != 0));
    }
    out.push(LEVEL_SEPARATOR);
    SECONDARY.write(text.len(), false, out);
    out.push(LEVEL_SEPARATOR);
    let mut common = 0;
    for &byte in text.as_bytes() {
        match all[usize::from(byte)].tertiary {
            0 => common += 1,
            higher => {
                TERTIARY.write(std::mem::take(&mut common), true, out);
                out.push(higher);
            }
        }
    }
    TERTIARY.write(common, false, out);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compare(text: &str) -> bool {
        let (mut key, mut expected) = (vec![7], vec![7]);
        let is_known = write_sort_key(text, &mut key);
        if is_known {
            let Ok(()) = collator().write_sort_key_to(text, &mut expected);
        }
        assert_eq!(key, expected, "{text:?}");
        is_known
    }

    #[test]
    fn printable_characters_are_known() {
        for byte in b' '..=b'~' {
            assert!(compare(&char::from(byte).to_string()));
        }
        for text in ["", "é", "a\0", "aé"] {
            assert_eq!(compare(text), text.is_empty());
        }
    }

    #[test]
    fn any_two_characters_compare_as_in_the_collator() {
        for (one, other) in
            (b' '..=b'~').flat_map(|one| (b' '..=b'~').map(move |other| (one, other)))
        {
            assert!(compare(&format!("{}{}", char::from(one), char::from(other))));
        }
    }

    #[test]
    fn long_runs_of_common_weights_are_counted() {
        for count in
            [1, 0x20, 0x21, 0x22, 0x23, 0x42, 0x43, 0x60, 0x61, 0x62, 0x63, 0xc2, 0xc3, 500]
        {
            for end in ["", "A", "Aa", "1"] {
                assert!(compare(&("b".repeat(count) + end)));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn any_text_compares_as_in_the_collator(text in "[ -~]{0,40}|[a-cA-C0-2 .]{0,200}|[\0-\u{ff}]{0,5}") {
            compare(&text);
        }
    }
}
