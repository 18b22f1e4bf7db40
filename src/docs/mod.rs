#![cfg_attr(not(doctest), doc = include_str!("links.md"))]
#![doc = include_str!("README.md")]

// Each page is read here and on the repository's page. `links.md`, which is read before it, says where its links
// lead here; the end of the page says where they lead there (`.ci/jobs/pages.py`). Its programs need no links, and
// without them a failure names the line of the page.

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("coming_from_client_go.md")]
pub mod coming_from_client_go {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("how_it_ends.md")]
pub mod how_it_ends {}

pub mod how_to;

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
/// How the crate works, for contributors.
///
#[doc = include_str!("architecture.svg")]
///
#[doc = include_str!("internals.md")]
pub mod internals {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("limitations.md")]
pub mod limitations {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("metrics.md")]
pub mod metrics {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("performance.md")]
pub mod performance {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
/// What the queue promises.
///
#[doc = include_str!("state.svg")]
///
#[doc = include_str!("semantics.md")]
pub mod semantics {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("which_tool.md")]
pub mod which_tool {}
