//! Keeps other sites from acting with a browser's rights.
//!
//! Each browser gets a random token in a cookie that only its own site's posts carry, and each form has the token as a
//! field. A link from another site carries the cookie, too: a page that had another token would refuse the forms of those that
//! are open. A post is refused unless both are there and equal, and unless the browser says that it comes from this site:
//! `Sec-Fetch-Site`, or `Origin` where that is missing. A program that is no browser sends neither of the two, and needs the
//! token all the same.
//!
//! Behind a proxy that sets `X-Forwarded-Proto: https` the cookie is `Secure`, and named so that no page without TLS, or of another
//! name of the domain, can set it.

use http::header::{COOKIE, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Uri};
use std::net::Ipv4Addr;

const COOKIE_NAME: &str = "keyqueue_board";
const SECURE_NAME: &str = "__Host-keyqueue_board";

/// Returns the name of the cookie and its last attribute, by whether a proxy says that the browser speaks TLS.
fn kind_of_cookie(headers: &HeaderMap) -> (&'static str, &'static str) {
    match headers.get("x-forwarded-proto").map(HeaderValue::as_bytes) {
        Some(b"https") => (SECURE_NAME, "; Secure"),
        _ => (COOKIE_NAME, ""),
    }
}

/// The token of a browser.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Whether the browser does not have it yet.
    pub(crate) is_new: bool,
}

impl Token {
    /// Returns the token that a request carries, or a new one. `None` if the system has no random numbers.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        if let Some(text) = carried(headers) {
            let is_new = false;
            return Some(Token { text, is_new });
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let text = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Token { text, is_new: true })
    }

    /// Returns the cookie in the response to a request with these headers.
    pub(crate) fn cookie(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let (text, (name, secure)) = (&self.text, kind_of_cookie(headers));
        let cookie = format!("{name}={text}; Path=/; HttpOnly; SameSite=Lax{secure}");
        HeaderValue::try_from(cookie).ok()
    }
}

/// Returns the token in the cookies, if it has the form of one.
fn carried(headers: &HeaderMap) -> Option<String> {
    let cookies = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|all| all.to_str().ok());
    let mut pairs = cookies.flat_map(|all| all.split(';')).map(str::trim);
    let (name, _) = kind_of_cookie(headers);
    let text = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let is_token = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_token.then(|| text.to_owned())
}

/// Returns the name or the address by which a request calls this service, if it must not: a name of another site that
/// resolves to this one's address makes a browser take the board for a page of that site. An address is no such name, nor is
/// `localhost`.
pub(crate) fn stranger<'r>(
    headers: &'r HeaderMap,
    uri: &'r Uri,
    known: &[String],
) -> Option<&'r str> {
    let host = match headers.get(HOST) {
        Some(host) => host.to_str().unwrap_or("?"),
        None => uri.authority()?.as_str(),
    };
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let has_port = port.bytes().all(|byte| byte.is_ascii_digit());
    let name = if has_port { name } else { host };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_address = name.parse::<Ipv4Addr>().is_ok() || name.starts_with('[');
    let is_local = name == "localhost" || name.ends_with(".localhost");
    let is_known = is_address || is_local || known.contains(&name);
    (!is_known).then_some(host)
}

/// Returns why a post is refused, if it is.
pub(crate) fn check(headers: &HeaderMap, token: &str) -> Result<(), &'static str> {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or(""))
    };
    let site = text(http::HeaderName::from_static("sec-fetch-site"));
    match (site, text(ORIGIN)) {
        (Some("same-origin"), _) => {}
        (Some(_), _) => return Err("the request comes from another site"),
        (None, Some(origin)) => {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            if authority.is_none() || authority != text(HOST) {
                return Err("the request comes from another origin");
            }
        }
        (None, None) => {}
    }
    let Some(carried) = carried(headers) else {
        return Err("the request has no token in a cookie");
    };
    // The time must not depend on where they differ.
    let differs = carried
        .bytes()
        .zip(token.bytes())
        .fold(0, |all, (a, b)| all | (a ^ b));
    match carried.len() == token.len() && differs == 0 {
        true => Ok(()),
        false => {
            Err("the token of the form is not that of the browser's cookie: load the page again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        let pairs = pairs
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        pairs.collect()
    }

    #[test]
    fn a_cookie_of_another_form_is_none() {
        for value in ["", "abc", &"g".repeat(32), &"a".repeat(33)] {
            let cookie = format!("{COOKIE_NAME}={value}");
            assert!(
                carried(&headers(&[("cookie", &cookie)])).is_none(),
                "{value}"
            );
        }
    }
}
