//! How deeply JSON nests and how many values it has, determined without recursion and without parsing.

/// The most levels of external JSON in replies and logs: call arguments, tool data. Some readers stop at 64 by default,
/// and a reply adds up to four levels of its own.
pub const MAX_LEVELS: usize = 60;

/// Whether this JSON text nests at most `limit` levels deep.
pub fn within(json: &[u8], limit: usize) -> bool {
    // Fast path: text with no more brackets than levels, as nearly all text is, cannot be too deep.
    if memchr::memchr2_iter(b'{', b'[', json).nth(limit).is_none() {
        return true;
    }
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in json {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return false;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

/// Whether this JSON text has more than `most` values and field names.
pub fn has_more(json: &[u8], most: usize) -> bool {
    // Fast path: text with fewer structural characters than that, as nearly all text is, cannot have more.
    let signs = memchr::memchr2_iter(b'{', b'[', json).chain(memchr::memchr2_iter(b',', b':', json));
    if signs.take(most).count() < most {
        return false;
    }
    let (mut nodes, mut quoted, mut escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' | b',' | b':' if !quoted => nodes += 1,
            _ => {}
        }
    }
    nodes > most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings() {
        let list = |many: usize| format!("[{}]", vec!["1"; many].join(","));
        assert!(!has_more(list(10).as_bytes(), 11) && has_more(list(10).as_bytes(), 10));
        assert!(!has_more(format!("{:?}", ",:[{\\\",".repeat(1000)).as_bytes(), 10));
    }

    #[test]
    fn depth_is_counted_outside_strings() {
        assert!(within(br#"{"a":"[[[[\"[[[["}"#, 1));
        assert!(within(br#"{"a\\":["b\\"],"c":[1]}"#, 2));
        assert!(within(b"[[]]", 2));
        assert!(within(b"[[],[],[]]", 2));
        assert!(!within(b"[[[]]]", 2));
        assert!(!within(&b"[".repeat(1_000_000), MAX_LEVELS));
        assert!(within(b"7", 0));
    }
}
