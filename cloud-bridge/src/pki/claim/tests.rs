//! Tests of `claim`.

use super::*;

fn token() -> Token {
    Token::random_of(Kind::Claim, &"ab".repeat(32)).unwrap()
}

fn claim(token: &Token, uses: usize) -> Claim {
    let labels = [("sampan.dev/site".to_owned(), "hall-3".to_owned()), ("a".to_owned(), String::new())].into();
    let terms = Terms { pattern: "gw-{serial}".parse().unwrap(), uses, auto: true, labels };
    let expires = "2030-01-01T00:00:00Z".parse().unwrap();
    Claim { name: token.name(), terms, expires, hash: token.digest("hash"), used: BTreeSet::new() }
}

fn secret(claim: &Claim, kind: &str) -> Secret {
    secrets::object(kind, &claim.name, claim.data())
}

#[test]
fn claim_token_is_another_kind_of_token() {
    let token = token();
    assert!(token.text().starts_with("sampan2.") && is_name(&token.name()));
    assert!(Token::parse_of(Kind::Claim, &token.text()).is_ok());
    assert!(Token::parse(&token.text()).is_err(), "it joins no node");
    let other = Token::random(&"ab".repeat(32)).unwrap();
    let error = Token::parse_of(Kind::Claim, &other.text()).err().unwrap().to_string();
    assert_eq!(error, "this is not a claim token: it must look like sampan2.<64 hex digits>.<secret>");
}

#[test]
fn kept_claim_has_no_secret_and_reads_back() {
    let token = token();
    let mut kept = claim(&token, 3);
    kept.add(0xff).unwrap();
    let stored = secret(&kept, KIND);
    assert_eq!(Claim::of(&stored), Some(kept.clone()));
    let secret_part = token.text().rsplit('.').next().unwrap().to_owned();
    assert!(!(serde_json::to_string(&stored).unwrap() + &kept.name).contains(&secret_part));
    assert_eq!(Claim::of(&secret(&kept, "Opaque")), None);
    let listed = Listed::from(kept);
    assert_eq!((listed.uses, listed.used, listed.approve, listed.labels.len()), (3, 1, "auto", 2));
}

#[test]
fn use_takes_eight_bytes() {
    let token = token();
    let mut kept = claim(&token, MAX_USES);
    for request in (0..u64::MAX).rev().take(MAX_USES) {
        assert!(kept.add(request).unwrap());
    }
    let mut stored = secret(&kept, KIND);
    assert_eq!(Claim::of(&stored), Some(kept));
    let used = &mut stored.data.as_mut().unwrap().get_mut("used").unwrap().0;
    assert_eq!(used.len(), 8 * MAX_USES);
    used.pop();
    let error = Claim::read(&stored).unwrap_err();
    assert!(matches!(&error, ClaimError::Damaged(name) if *name == token.name()), "not deleted: {error}");
    stored.type_ = Some("Opaque".to_owned());
    assert!(matches!(Claim::read(&stored), Err(ClaimError::Unknown)));
}

#[test]
fn numbers_of_requests_are_stored_big_endian_and_sorted() {
    let stored = [[0_u8, 0, 0, 0, 0, 0, 0, 9], [0, 0, 0, 0, 0, 0, 1, 2], [0xff; 8]].concat();
    let all: BTreeSet<u64> = [u64::MAX, 0x102, 9].into();
    assert_eq!((pack(&all), unpack(&stored)), (stored.clone(), Some(all.clone())));
    let by_hand = [&stored[8..16], &stored[..8], &stored[16..], &stored[..8]].concat();
    assert_eq!(unpack(&by_hand), Some(all), "any order, and one of them twice");
    assert_eq!((pack(&BTreeSet::new()), unpack(&[])), (Vec::new(), Some(BTreeSet::new())));
}

#[test]
fn e2_each_request_is_counted_once_until_none_is_left() {
    let mut claim = claim(&token(), 2);
    assert!(claim.add(1).unwrap());
    assert!(!claim.add(1).unwrap(), "it asks again");
    assert!(claim.add(2).unwrap());
    assert!(matches!(claim.add(3), Err(ClaimError::UsedUp(2))));
    assert!(!claim.add(2).unwrap(), "a counted request goes on");
}

#[test]
fn e2_secret_and_lifetime_are_checked() {
    let token = token();
    let claim = claim(&token, 1);
    let early: Timestamp = "2029-12-31T23:59:59Z".parse().unwrap();
    claim.check(&token, early).unwrap();
    assert!(matches!(claim.check(&token, claim.expires), Err(ClaimError::Expired(_))));
    assert!(matches!(claim.check(&self::token(), early), Err(ClaimError::Unknown)));
}
