//! Bytes as text of the metadata of an offset: 15 bits a character, because brokers count characters; or 6 bits a character of
//! ASCII, for brokers that count bytes.

/// The first of the 32 768 characters of wide texts. None of them is a surrogate, white space or ASCII.
const FIRST: u32 = 0x3400;
const ASCII: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// How many bytes fit in this many characters.
pub(super) fn room(characters: usize, is_wide: bool) -> usize {
    characters.saturating_mul(bits(is_wide) as usize) / 8
}

fn bits(is_wide: bool) -> u32 {
    if is_wide { 15 } else { 6 }
}

pub(super) fn write(bytes: &[u8], is_wide: bool) -> String {
    let width = bits(is_wide);
    let character = |value: u32| match is_wide {
        true => char::from_u32(FIRST + value).unwrap_or_default(),
        false => char::from(ASCII[value as usize]),
    };
    let mut text = String::new();
    let (mut held, mut count) = (0_u32, 0);
    for byte in bytes {
        held |= u32::from(*byte) << count;
        count += 8;
        while count >= width {
            text.push(character(held & ((1 << width) - 1)));
            held >>= width;
            count -= width;
        }
    }
    if count > 0 {
        text.push(character(held));
    }
    text
}

/// Reads what `write` wrote, with up to a byte of zeros behind it.
pub(super) fn read(text: &str) -> Option<Vec<u8>> {
    let is_wide = text.chars().next()? as u32 >= FIRST;
    let width = bits(is_wide);
    let mut bytes = Vec::new();
    let (mut held, mut count) = (0_u32, 0);
    for character in text.chars() {
        let value = match is_wide {
            true => u32::from(character).checked_sub(FIRST)?,
            false => ASCII
                .iter()
                .position(|known| char::from(*known) == character)? as u32,
        };
        if value >> width != 0 {
            return None;
        }
        held |= value << count;
        count += width;
        while count >= 8 {
            bytes.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    Some(bytes)
}
