//! A keyed work queue on many machines.

mod ownership;
