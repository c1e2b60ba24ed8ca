//! Tests of the web UI's files: headers, cache and compression, with and without the UI in the build.

use crate::support::{RawResponse, World, send, world};

async fn get(world: &World, path: &str, headers: &str) -> RawResponse {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    let mut response = send(world.addr, request.as_bytes()).await;
    response.head.make_ascii_lowercase();
    response
}

#[tokio::test]
async fn page_forbids_inline_code_other_hosts_and_frames() {
    let world = world(1).await;
    let page = get(&world, "/", "").await;
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-type: text/html; charset=utf-8"), "{}", page.head);
    let policy = page.head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(page.head.contains("x-frame-options: deny") && page.head.contains("x-content-type-options: nosniff"));
    let text = String::from_utf8(page.body).unwrap();
    match squall_web::has_ui() {
        true => assert!(!text.contains("<style") && !text.contains("<script>"), "{text}"),
        false => assert!(text.contains("make ui"), "{text}"),
    }
}

#[tokio::test]
async fn files_with_a_hash_in_their_name_are_compressed_and_kept_by_browsers() {
    let world = world(1).await;
    let unknown = get(&world, "/assets/unknown.js", "").await;
    assert_eq!(unknown.status, 404);
    if !squall_web::has_ui() {
        return;
    }
    let page = String::from_utf8(get(&world, "/", "").await.body).unwrap();
    let script = page.split('"').find(|part| part.ends_with(".js")).expect("a script");
    let path = format!("/{}", script.trim_start_matches('/'));
    let plain = get(&world, &path, "").await;
    assert!(plain.status == 200 && !plain.head.contains("content-encoding"), "{}", plain.head);
    assert!(plain.head.contains("cache-control: public, max-age=31536000, immutable"), "{}", plain.head);
    let compressed = get(&world, &path, "Accept-Encoding: br, gzip;q=0.9\r\n").await;
    assert!(compressed.head.contains("content-encoding: gzip"), "{}", compressed.head);
    assert!(compressed.body.len() * 2 < plain.body.len());
    let refused = get(&world, &path, "Accept-Encoding: gzip;q=0\r\n").await;
    assert!(!refused.head.contains("content-encoding"), "{}", refused.head);
}
