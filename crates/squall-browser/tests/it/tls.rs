//! A browser behind TLS, as that of a grid whose balancer ends TLS.

use squall_browser::{Browser, BrowserConfig, BrowserConnectError};
use squall_testkit::tls::{CertificateAuthority, CertificateValidity, TlsProxy};

use crate::support::{PageServer, expect_text, goto, run, run_steps};

#[test]
fn browser_behind_tls_is_driven_if_its_certificate_is_trusted() {
    let pages = PageServer::start(&[("/", "<h1>behind TLS</h1>")]);
    let (authority, stranger) = (CertificateAuthority::new(), CertificateAuthority::new());
    let identity = authority.issue(&["localhost"], CertificateValidity::Current);
    run(async {
        let listening = BrowserConfig { listens: true, ..BrowserConfig::default() };
        let served = Browser::launch(&listening).await.unwrap_or_else(|error| panic!("{error}"));
        let endpoint = served.endpoint().expect("it listens").strip_prefix("ws://127.0.0.1:").expect("a URL");
        let (port, path) = endpoint.split_once('/').expect("a path");
        let config = CertificateAuthority::server_config(&identity, None, &["http/1.1"]);
        let proxy = TlsProxy::start(config, port.parse().expect("a port"));
        let url = |host: &str| format!("wss://{host}:{}/{path}", proxy.port());
        let trusting = |authority: &CertificateAuthority| BrowserConfig {
            tls: Some(authority.client_config()),
            ..BrowserConfig::default()
        };
        let connected = Browser::connect(&url("localhost"), None, &trusting(&authority)).await;
        let browser = connected.unwrap_or_else(|error| panic!("{error}"));
        let page = browser.new_page().await.expect("a page");
        run_steps(&page, &[goto(pages.url("/")), expect_text("behind TLS")]).await.expect("the steps pass");

        let message = |refused: Result<Browser, BrowserConnectError>| refused.err().expect("refused").to_string();
        let refused = message(Browser::connect(&url("localhost"), None, &trusting(&stranger)).await);
        assert!(refused.contains("`ca` in [browser] names the file"), "{refused}");
        let refused = message(Browser::connect(&url("127.0.0.1"), None, &trusting(&authority)).await);
        assert!(refused.contains("not valid for name"), "{refused}");
        let refused = message(Browser::connect(&url("localhost"), None, &BrowserConfig::default()).await);
        assert!(refused.contains("is no URL of a grid"), "{refused}");
    });
}
