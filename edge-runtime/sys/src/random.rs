//! Chance, to spread in time what many nodes would else do at once. No secrets are made of it.

/// Any of all numbers. Without a source of randomness the highest: who waits by it loses the spread, not the pause.
pub fn random() -> u32 {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 4];
    if ring::rand::SystemRandom::new().fill(&mut bytes).is_ok() { u32::from_ne_bytes(bytes) } else { u32::MAX }
}
