//! Ten short programs, each as a first program with the crate is: written from the pages alone.

mod batch;
mod dead_letters;
mod generic;
mod give_up;
mod mock_clock;
mod own_limiter;
mod service;
mod tenants;
mod tokio_values;
mod urgent;
