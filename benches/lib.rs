//! The benches beside this file are programs.
