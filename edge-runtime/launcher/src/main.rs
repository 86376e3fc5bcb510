//! `edge-launcher`, installed as `/usr/bin/edge-runtime`.

fn main() {}
