//! Random numbers, to spread the load of many nodes in time. Not for secrets.

/// Any of all numbers. Without a source of randomness the highest: who waits by it loses the spread, not the pause.
pub fn random() -> u32 {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 4];
    if ring::rand::SystemRandom::new().fill(&mut bytes).is_ok() { u32::from_ne_bytes(bytes) } else { u32::MAX }
}
