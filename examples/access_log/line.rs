//! A line of an access log, in the Common Log Format or the combined one:
//!
//! ```text
//! 192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /index.html HTTP/1.0" 200 2326
//! ```

const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";

/// The client, the status, and the minute, as `2000-10-10 13:55 -0700`.
pub(crate) type Request<'a> = (&'a str, &'a str, String);

/// Returns `None` if the line is not of an access log.
pub(crate) fn parse(line: &[u8]) -> Option<Request<'_>> {
    let (client, rest) = str::from_utf8(line).ok()?.split_once(' ')?;
    let (_user, rest) = rest.split_once(" [")?;
    let (time, rest) = rest.split_once("] \"")?;
    // The request ends with a quote that is not escaped.
    let mut escaped = false;
    let end = rest.find(|char| {
        let ends = char == '"' && !escaped;
        escaped = char == '\\' && !escaped;
        ends
    })?;
    let status = numeric(rest[end..].split_ascii_whitespace().nth(1)?, 3)?;
    Some((client, status, minute(time)?))
}

fn minute(time: &str) -> Option<String> {
    let parts: Vec<_> = time.split(['/', ':', ' ']).collect();
    let [day, month, year, hour, minute, _second, zone] = parts[..] else {
        return None;
    };
    let month = 1 + MONTHS.find(month).filter(|_| month.len() == 3)? / 3;
    let (year, day) = (numeric(year, 4)?, numeric(day, 2)?);
    let (hour, minute) = (numeric(hour, 2)?, numeric(minute, 2)?);
    numeric(zone.strip_prefix(['+', '-'])?, 4)?;
    Some(format!("{year}-{month:02}-{day} {hour}:{minute} {zone}"))
}

fn numeric(text: &str, digits: usize) -> Option<&str> {
    let is_numeric = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_numeric.then_some(text)
}
