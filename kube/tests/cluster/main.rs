//! On a real API server: `kube/apiserver.sh` builds it, and the tests are skipped where it is missing. They run
//! one after the other.

mod again;
mod common;
mod generator;
mod leader;
mod objects;
mod outages;
mod start;
mod witness;
