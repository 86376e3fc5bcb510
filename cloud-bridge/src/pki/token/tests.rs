//! What `token` promises, case by case.

use edge_protocol::join_token;

use super::*;

fn authority() -> String {
    "ab".repeat(32)
}

fn kept(token: &Token) -> Kept {
    Kept { hash: token.digest("hash"), node: "edge-1".into(), expires: "2030-01-01T00:00:00Z".parse().unwrap() }
}

#[test]
fn text_and_back() {
    let token = Token::random(&authority()).unwrap();
    assert!(Token::parse(&token.text()).unwrap() == token);
    assert!(Token::parse(&format!(" {}\n", token.text())).unwrap() == token, "as pasted");
    let place = join_token::Place { node: "edge-1".into(), bridges: vec!["https://b:1".into()] };
    assert!(
        Token::parse(&join_token::with_place(&token.text(), &place)).unwrap() == token,
        "as an older node sends it"
    );
}

#[test]
fn malformed_tokens_are_refused() {
    let hash = authority();
    for bad in [
        "",
        "sampan1",
        &format!("sampan1.{hash}"),
        &format!("sampan2.{hash}.0123456789abcdef0123"),
        &format!("sampan1.{hash}.0123456789abcdef0123.x"),
        &format!("sampan1.{}.0123456789abcdef0123", &hash[2..]),
        &format!("sampan1.{hash}.short"),
        &format!("sampan1.{hash}.0123456789abcdef/../x"),
    ] {
        assert!(matches!(Token::parse(bad), Err(TokenError::Malformed(Kind::Node))), "{bad}");
    }
}

#[test]
fn the_kept_part_checks_node_time_and_secret() {
    let token = Token::random(&authority()).unwrap();
    let kept = kept(&token);
    let early: Timestamp = "2029-12-31T23:59:59Z".parse().unwrap();
    assert!(kept.check(&token, "edge-1", early).is_ok());
    assert!(matches!(kept.check(&token, "edge-2", early), Err(TokenError::OtherNode(_))));
    assert!(matches!(kept.check(&token, "edge-1", kept.expires), Err(TokenError::Expired(_))));
    let other = Token::random(&authority()).unwrap();
    assert!(matches!(kept.check(&other, "edge-1", early), Err(TokenError::Unknown)));
}

#[test]
fn what_is_kept_does_not_hold_the_secret() {
    let token = Token::random(&authority()).unwrap();
    let kept = kept(&token);
    let secret = Secret { data: Some(kept.data()), ..Secret::default() };
    assert_eq!(Kept::of(&secret), Some(kept));
    let text = serde_json::to_string(&secret).unwrap() + &token.name();
    assert!(!text.contains(&token.secret));
    assert_eq!(Kept::of(&Secret::default()), None);
}

#[test]
fn only_secrets_of_the_type_are_tokens() {
    let kept = kept(&Token::random(&authority()).unwrap());
    let secret = |kind: &str| secrets::object(kind, "join-a", kept.data());
    let unused = Unused { name: "join-a".into(), node: "edge-1".into(), expires: "2030-01-01T00:00:00Z".into() };
    assert_eq!(Unused::of(&secret(KIND)), Some(unused));
    assert_eq!(Unused::of(&secret("Opaque")), None);
}
