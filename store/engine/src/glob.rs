//! Glob patterns as `KEYS` and `SCAN MATCH` know them: `*`, `?`, `[a-z]`, `[^x]`, `\x`.

/// Whether `text` matches `pattern`.
///
/// Iterative with one remembered star, so the time is bounded by the product of the lengths: recursive
/// matchers gave Redis CVE-2022-36021 and CVE-2024-31228.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p + 1, t));
            p += 1;
            continue;
        } else {
            single(&pattern[p.min(pattern.len())..], text[t])
        };
        match (step, star) {
            (Some(width), _) => {
                p += width;
                t += 1;
            }
            (None, Some((after, from))) => {
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// If the element at the start of `pattern` accepts `byte`: the element's width.
fn single(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => class(pattern, byte),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        literal => (literal == byte).then_some(1),
    }
}

/// A bracket class; an unclosed one ends with the pattern, as in Redis' `stringmatchlen`.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut hit = false;
    loop {
        match pattern.get(at) {
            None => break,
            Some(b']') => {
                at += 1;
                break;
            }
            Some(b'\\') if at + 1 < pattern.len() => {
                hit |= pattern[at + 1] == byte;
                at += 2;
            }
            Some(&low) if pattern.get(at + 1) == Some(&b'-') && at + 2 < pattern.len() => {
                let high = pattern[at + 2];
                hit |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            Some(&literal) => {
                hit |= literal == byte;
                at += 1;
            }
        }
    }
    (hit != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_of_the_manual() {
        for (pattern, text, wanted) in [
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h*llo", "hllo", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("[\\]]", "]", true),
            ("user:*", "user:", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} on {text}");
        }
    }

    #[test]
    fn many_stars_stay_quick() {
        let text = vec![b'a'; 20_000];
        let pattern = [b"*?".repeat(200), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &text));
    }
}
