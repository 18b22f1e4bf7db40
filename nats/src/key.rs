//! Keys as tokens of subjects.
//!
//! A key is any text of 1 to [`MOST`] bytes, once it is encoded. ASCII letters, digits, `-`, `_` and everything that is
//! not ASCII stand for themselves; every other byte is written as `%` and two hexadecimal digits, as in URLs. So no key has a
//! `.`, `*`, `>` or space in a subject. The encoding is part of the wire format: a key has one, so it has one subject, and
//! one partition.

use std::borrow::Cow;

use crate::Error;

/// The most bytes that an encoded key may have.
const MOST: usize = 200;

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || !byte.is_ascii()
}

pub(crate) fn encode(key: &str) -> Result<Cow<'_, str>, Error> {
    let refused = |reason: Cow<'static, str>| Error::Key {
        key: key.to_owned(),
        reason,
    };
    let escaped = key.bytes().filter(|byte| !is_plain(*byte)).count();
    match key.len() + 2 * escaped {
        0 => return Err(refused("is empty".into())),
        length if length > MOST => {
            let reason = format!("has {length} bytes when it is encoded: {MOST} at most");
            return Err(refused(reason.into()));
        }
        _ => {}
    }
    if escaped == 0 {
        return Ok(Cow::Borrowed(key));
    }
    let mut token = String::with_capacity(key.len() + 2 * escaped);
    for letter in key.chars() {
        match u8::try_from(letter) {
            Ok(byte) if byte.is_ascii() && !is_plain(byte) => {
                token.push_str(&format!("%{byte:02X}"));
            }
            _ => token.push(letter),
        }
    }
    Ok(Cow::Owned(token))
}

/// Returns the key of a token. `None`: [`encode`] returns this token for no key.
pub(crate) fn decode(token: &str) -> Option<Cow<'_, str>> {
    if !(1..=MOST).contains(&token.len()) {
        return None;
    }
    if !token.contains('%') {
        return token.bytes().all(is_plain).then_some(Cow::Borrowed(token));
    }
    let mut parts = token.split('%');
    let mut key = parts.next()?.to_owned();
    for part in parts {
        // Slices of bytes: the two after a `%` might be part of a character.
        let byte = u8::from_str_radix(part.get(..2)?, 16)
            .ok()
            .filter(u8::is_ascii)?;
        key.push(char::from(byte));
        key.push_str(&part[2..]);
    }
    let same = encode(&key).is_ok_and(|again| again == token);
    same.then_some(Cow::Owned(key))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_key_comes_back(key in "\\PC{1,30}|[ -~\\n\\t]{1,60}") {
            let token = encode(&key).unwrap();
            prop_assert!(!token.contains(['.', '*', '>', ' ', '\n', '\t']), "{token}");
            prop_assert_eq!(&*decode(&token).unwrap(), &*key);
        }

        /// Two tokens of one key would be in two partitions.
        #[test]
        fn a_token_is_that_of_one_key_or_of_none(token in "[%0-9A-Fa-fxü.]{0,12}|[ax]{190,250}|(%20|x){60,120}") {
            if let Some(key) = decode(&token) {
                prop_assert_eq!(&*encode(&key).unwrap(), &*token);
            }
        }
    }

    #[test]
    fn the_wire_format_is_fixed() {
        assert_eq!(encode("pod/a.b ü%").unwrap(), "pod%2Fa%2Eb%20ü%25");
        assert_eq!(encode("plain-key_1").unwrap(), "plain-key_1");
        assert!(decode("%2f").is_none());
        assert!(decode("%ü").is_none());
        assert!(decode("%41").is_none());
    }

    #[test]
    fn empty_and_long_keys_are_refused_by_name() {
        assert_eq!(
            encode("").unwrap_err().to_string(),
            r#"the key "" is empty"#
        );
        assert!(encode(&"a".repeat(200)).is_ok());
        assert!(encode(&"a".repeat(201)).is_err());
        assert!(encode(&".".repeat(66)).is_ok());
        assert_eq!(
            encode(&"./".repeat(34)).unwrap_err().to_string(),
            r#"the key "././././././././././././././././././././"... has 204 bytes when it is encoded: 200 at most"#
        );
        let long = encode(&"ü".repeat(1 << 20)).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
        assert!(long.contains("2097152 bytes"), "{long}");
    }
}
