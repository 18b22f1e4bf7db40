//! Wakers, and the functions of groups, that call the queue from within a call of it (S15, S7, S10).

mod functions;
mod wakers;
