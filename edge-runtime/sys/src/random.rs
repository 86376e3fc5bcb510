//! Random numbers, to spread the load of many nodes in time. Not for secrets.

/// Returns a random number. Without a source of randomness the maximum: a delay then loses its spread, not its length.
pub fn random() -> u32 {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 4];
    if ring::rand::SystemRandom::new().fill(&mut bytes).is_ok() { u32::from_ne_bytes(bytes) } else { u32::MAX }
}
