//! Fragments of texts with the matches marked.

/// Length of a fragment, in characters.
const LENGTH: usize = 200;

/// Returns a fragment of a text around the matches, which are given as sorted pairs of start and end in bytes.
pub fn fragment(text: &str, places: &[(usize, usize)], ansi: bool) -> String {
    let places: Vec<(usize, usize)> = places
        .iter()
        .copied()
        .filter(|(start, end)| start < end && text.get(*start..*end).is_some())
        .collect();
    let (start, end) = window(text, &places);
    let (open, close) = if ansi { ("\x1b[43m", "\x1b[0m") } else { ("<mark>", "</mark>") };
    let mut output = String::new();
    if start > 0 {
        output.push('…');
    }
    let mut at = start;
    for (from, to) in places {
        if from < at || to > end {
            continue;
        }
        push(&mut output, &text[at..from], ansi);
        output.push_str(open);
        push(&mut output, &text[from..to], ansi);
        output.push_str(close);
        at = to;
    }
    push(&mut output, &text[at..end], ansi);
    if end < text.len() {
        output.push('…');
    }
    output
}

/// Returns the window of a fragment's length that contains the most matches.
fn window(text: &str, places: &[(usize, usize)]) -> (usize, usize) {
    let forward = |from: usize, count: usize| {
        text[from..].char_indices().nth(count).map_or(text.len(), |(at, _)| from + at)
    };
    let backward = |from: usize, count: usize| {
        text[..from].char_indices().rev().nth(count.saturating_sub(1)).map_or(0, |(at, _)| at)
    };
    let mut best = (0, 0, 0);
    let mut last = 0;
    for (at, (start, _)) in places.iter().enumerate() {
        let end = forward(*start, LENGTH);
        last = last.max(at);
        while last < places.len() && places[last].1 <= end {
            last += 1;
        }
        if last - at > best.0 {
            best = (last - at, *start, places[last.max(1) - 1].1.max(*start));
        }
    }
    let (_, start, end) = best;
    // The spare characters are divided between both sides.
    let used = text[start..end].chars().count();
    let spare = LENGTH.saturating_sub(used);
    let from = if spare > 0 { backward(start, spare / 2) } else { start };
    let taken = text[from..start].chars().count();
    let to = forward(end, spare - taken);
    let after = text[end..to].chars().count();
    let rest = spare - taken - after;
    let from = if rest > 0 { backward(from, rest) } else { from };
    (from, to)
}

fn push(output: &mut String, text: &str, ansi: bool) {
    if ansi {
        output.push_str(text);
        return;
    }
    for character in text.chars() {
        match character {
            '&' => output.push_str("&amp;"),
            '<' => output.push_str("&lt;"),
            '>' => output.push_str("&gt;"),
            '"' => output.push_str("&#34;"),
            '\'' => output.push_str("&#39;"),
            character => output.push(character),
        }
    }
}
