//! Steps on pages, and what pages measure.

use squall_browser::{Browser, BrowserAction, BrowserConfig, BrowserStep, Expectation, RequestResult, StepError};
use std::time::{Duration, Instant};

use crate::support::{DEADLINE, PageServer, click, expect_text, failure, fill, goto, launch, run, run_steps};

const FORM: &str = r#"<!doctype html><title>Form</title><h1>Welcome</h1>
<form action="/thanks"><input id="name" name="name" value="old"><select id="size" name="size"><option value="s">Small
<option value="l">Large</select><button id="send">Send it</button></form>
<button id="late" style="display:none" onclick="document.querySelector('h1').textContent='clicked'">Late</button>
<script>setTimeout(() => { document.getElementById('late').style.display = 'block'; }, 150)</script>"#;

#[test]
fn a_form_is_filled_and_sent_and_each_document_counts_once() {
    run(async {
        let server = PageServer::start(&[("/", FORM), ("/thanks", "<h1>Thank you</h1>")]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let select = BrowserAction::Select { selector: "#size".to_owned(), value: "Large".to_owned() };
        let steps = [
            goto(server.url("/")),
            click("#late"),
            expect_text("clicked"),
            fill("#name", "Ann & Bob"),
            BrowserStep { action: Some(select), ..BrowserStep::default() },
            click("text=Send it"),
            BrowserStep {
                action: None,
                expect: Expectation {
                    url: Some("/thanks?name=Ann+%26+Bob&size=l".to_owned()),
                    visible: Some("h1".to_owned()),
                    hidden: Some("#send".to_owned()),
                    text: Some("Thank you".to_owned()),
                    selector: Some("h1".to_owned()),
                },
            },
        ];
        run_steps(&page, &steps).await.unwrap_or_else(|error| panic!("{error}"));
        let measured = page.close().await;
        let loads: Vec<usize> = measured.loads.iter().map(|load| load.step).collect();
        assert_eq!(loads, [0, 5], "one document by goto, one by the click on the button");
        for load in &measured.loads {
            let vitals = load.vitals;
            for figure in [vitals.ttfb, vitals.fcp, vitals.dom_ready, vitals.load, vitals.lcp] {
                assert!(figure.is_some_and(|ms| ms > 0.0), "{vitals:?}");
            }
            assert!(vitals.fcp <= vitals.lcp && vitals.ttfb <= vitals.load && vitals.cls.is_some(), "{vitals:?}");
        }
        assert!(measured.loads[0].vitals.inp.is_some(), "the first page was clicked: {:?}", measured.loads);
        assert_eq!(server.asked(), ["/", "/thanks?name=Ann+%26+Bob&size=l"]);
        assert_eq!(measured.requests.len(), 2);
    });
}

#[test]
fn enter_sends_a_form() {
    run(async {
        let server = PageServer::start(&[("/", FORM), ("/thanks", "<h1>Thank you</h1>")]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let press = BrowserAction::Press { key: "Enter".to_owned(), selector: Some("#name".to_owned()) };
        let steps = [
            goto(server.url("/")),
            BrowserStep { action: Some(press), ..BrowserStep::default() },
            expect_text("Thank"),
        ];
        run_steps(&page, &steps).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(page.close().await.loads.len(), 2);
    });
}

#[test]
fn requests_bytes_failures_and_console_errors_are_counted() {
    const BODY: &str = r#"<!doctype html><h1>Errors</h1><script src="/ok.js"></script><script src="/missing.js"></script>
<script src="http://127.0.0.1:1/blocked.js"></script><script>console.error('broken', 7); nothing()</script>"#;
    run(async {
        let server = PageServer::start(&[("/", BODY), ("/ok.js", "1"), ("/moved", "!302 /")]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        run_steps(&page, &[goto(server.url("/moved"))]).await.unwrap_or_else(|error| panic!("{error}"));
        let measured = page.close().await;
        let count = |result: RequestResult| measured.requests.iter().filter(|sent| sent.result == result).count();
        assert_eq!(count(RequestResult::Status(302)), 1, "{measured:?}");
        assert_eq!(count(RequestResult::Status(200)), 2, "{measured:?}");
        assert_eq!(count(RequestResult::Status(404)), 1, "{measured:?}");
        assert_eq!(measured.requests.len(), 5, "{measured:?}");
        assert!(measured.requests.iter().any(|sent| matches!(&sent.result, RequestResult::Failed(_))), "{measured:?}");
        assert!(measured.requests.iter().map(|sent| sent.bytes).sum::<u64>() > BODY.len() as u64);
        assert_eq!(server.asked().len(), 4);
        let messages: Vec<&str> = measured.console_errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0] == "broken 7" && messages[1].contains("nothing is not defined"), "{messages:?}");
    });
}

#[test]
fn a_step_that_fails_says_what_stood_in_its_way() {
    const BODY: &str = r#"<!doctype html><h1>Shop</h1><button id="off" disabled>Off</button><button id="under">Under</button>
<p id="hidden" style="display:none">x</p>
<div id="cover" style="position:fixed;inset:0"></div>"#;
    run(async {
        let server = PageServer::start(&[("/", BODY), ("/broken", "!500 <h1>Oops</h1>")]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let early = failure(&page, &click("#off")).await.to_string();
        assert!(early.contains("the first step is a goto"), "{early}");
        run_steps(&page, &[goto(server.url("/"))]).await.unwrap_or_else(|error| panic!("{error}"));
        for (step, expected) in [
            (click("#none"), "click `#none` took too long: no element matches"),
            (click("#off"), "click `#off` took too long: button#off is disabled"),
            (click("#under"), "click `#under` took too long: button#under is covered by div#cover"),
            (click("#hidden"), "click `#hidden` took too long: p#hidden is not visible"),
            (expect_text("Basket"), "expected the text `Basket` in the page, which shows `Shop OffUnder`"),
        ] {
            assert_eq!(failure(&page, &step).await.to_string(), expected);
        }
        let no_css = failure(&page, &click("h1[")).await.to_string();
        assert!(no_css.contains("click `h1[` is not possible") && no_css.contains("not a valid selector"), "{no_css}");
        let no_input = failure(&page, &fill("h1", "x")).await.to_string();
        assert_eq!(no_input, "fill `h1` is not possible: h1 is no input, textarea or editable element");
        let broken = failure(&page, &goto(server.url("/broken"))).await;
        assert!(matches!(broken, StepError::Status { status: 500, .. }), "{broken}");
        let refused = failure(&page, &goto("http://127.0.0.1:1/".to_owned())).await.to_string();
        assert!(refused.contains("ERR_"), "{refused}");
        assert!(page.screenshot().await.expect("a picture").starts_with(b"\x89PNG"));
    });
}

#[test]
fn expected_text_is_what_an_element_shows() {
    const BODY: &str = r#"<!doctype html><button id="send" value="1">Send</button><ul><li id="item" value="7">Item</li></ul>
<input id="name" value="Ann"><select id="size"><option value="l">Large</option></select><textarea id="note">Thanks</textarea>"#;
    run(async {
        let server = PageServer::start(&[("/", BODY)]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let shows = |selector: &str, text: &str| {
            let (text, selector) = (Some(text.to_owned()), Some(selector.to_owned()));
            BrowserStep { action: None, expect: Expectation { text, selector, ..Expectation::default() } }
        };
        let steps = [
            goto(server.url("/")),
            shows("#send", "Send"),
            shows("#item", "Item"),
            shows("#name", "Ann"),
            shows("#size", "l"),
            shows("#note", "Thanks"),
        ];
        run_steps(&page, &steps).await.unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn error_page_of_the_browser_is_no_page_load() {
    run(async {
        let server = PageServer::start(&[("/", "<h1>Fine</h1>")]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let refused = failure(&page, &goto("http://127.0.0.1:1/".to_owned())).await.to_string();
        assert!(refused.contains("ERR_"), "{refused}");
        run_steps(&page, &[goto(server.url("/"))]).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(page.close().await.loads.len(), 1);
    });
}

#[test]
fn a_page_has_the_size_of_the_viewport_in_each_browser() {
    const BODY: &str = "<!doctype html><h1></h1><script>
document.querySelector('h1').textContent = `${innerWidth}x${innerHeight} at ${devicePixelRatio}`;</script>";
    run(async {
        let server = PageServer::start(&[("/", BODY)]);
        for program in ["chromium-headless-shell", "chromium"] {
            let executable = Some(format!("/usr/lib/chromium/{program}").into());
            let config = BrowserConfig { executable, viewport: (800, 600), ..BrowserConfig::default() };
            let browser = Browser::launch(&config).await.unwrap_or_else(|error| panic!("{error}"));
            let page = browser.new_page().await.expect("a page");
            let steps = [goto(server.url("/")), expect_text("800x600 at 1")];
            run_steps(&page, &steps).await.unwrap_or_else(|error| panic!("{program}: {error}"));
        }
    });
}

#[test]
fn pages_share_no_cookies() {
    const BODY: &str = r#"<!doctype html><h1></h1><script>
document.querySelector('h1').textContent = 'cookie:' + document.cookie; document.cookie = 'a=1';</script>"#;
    run(async {
        let server = PageServer::start(&[("/", BODY)]);
        let browser = launch().await;
        for _ in 0..2 {
            let page = browser.new_page().await.expect("a page");
            let exact = Expectation {
                text: Some("cookie:".to_owned()),
                hidden: Some("text=a=1".to_owned()),
                ..Expectation::default()
            };
            let steps = [goto(server.url("/")), BrowserStep { action: None, expect: exact }];
            run_steps(&page, &steps).await.unwrap_or_else(|error| panic!("{error}"));
            page.close().await;
        }
    });
}

#[test]
fn a_dialog_of_the_page_blocks_no_step() {
    const BODY: &str = r#"<!doctype html><button id="ask" onclick="document.title = confirm('sure?') ? 'yes' : 'no';
document.body.append('answered ' + document.title)">Ask</button>"#;
    run(async {
        let server = PageServer::start(&[("/", BODY)]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let steps = [goto(server.url("/")), click("#ask"), expect_text("answered yes")];
        run_steps(&page, &steps).await.unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn a_crashed_page_fails_its_step_and_the_next_page_works() {
    run(async {
        let server = PageServer::start(&[("/", "<h1>Fine</h1>")]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let crash = page.run_step(0, &goto("chrome://crash".to_owned()), Instant::now() + DEADLINE).await;
        let error = crash.result.expect_err("the page crashed");
        assert!(matches!(error, StepError::Crashed | StepError::Navigation { .. }), "{error}");
        page.close().await;
        let page = browser.new_page().await.expect("a page");
        run_steps(&page, &[goto(server.url("/")), expect_text("Fine")]).await.unwrap_or_else(|error| panic!("{error}"));
        assert!(tokio::time::timeout(Duration::from_secs(60), page.close()).await.is_ok());
    });
}

#[test]
fn a_page_that_never_answers_or_never_loads_fails_its_step_with_what_is_missing() {
    run(async {
        let server = PageServer::start(&[
            ("/hang", "!hang x"),
            ("/half", "<h1>Half</h1><img src=\"/hang\">"),
            ("/", "<a id=\"go\" href=\"/hang\">go</a>"),
        ]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let silent = failure(&page, &goto(server.url("/hang"))).await.to_string();
        assert!(silent.contains("took too long: the page has not answered, and 1 requests"), "{silent}");
        let half = failure(&page, &goto(server.url("/half"))).await.to_string();
        assert!(half.contains("/half is not loaded, and 1 of its requests have no answer"), "{half}");
        run_steps(&page, &[goto(server.url("/"))]).await.unwrap_or_else(|error| panic!("{error}"));
        let link = failure(&page, &click("#go")).await;
        assert!(matches!(link, StepError::Timeout { .. }), "{link}");
        let measured = page.close().await;
        assert_eq!(measured.loads.len(), 1, "only one page has loaded: {measured:?}");
    });
}

#[test]
fn a_click_whose_handler_takes_too_long_ends_at_the_deadline_of_its_step() {
    const BODY: &str = r#"<!doctype html><button id="slow" onclick="const end = Date.now() + 20000;
while (Date.now() < end) {}">Slow</button>"#;
    run(async {
        let server = PageServer::start(&[("/", BODY)]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        run_steps(&page, &[goto(server.url("/"))]).await.unwrap_or_else(|error| panic!("{error}"));
        let began = Instant::now();
        let clicked = page.run_step(1, &click("#slow"), began + Duration::from_secs(2)).await;
        let error = clicked.result.expect_err("the handler takes longer than the step").to_string();
        assert_eq!(error, "click `#slow` took too long: the page is still busy with the input");
        let took = clicked.ended - began;
        assert!(took < Duration::from_secs(10), "{took:?}");
    });
}

#[test]
fn frames_are_measured_with_their_page_and_are_no_page_loads() {
    run(async {
        let server = PageServer::start(&[
            ("/", "<h1>Outer</h1><iframe src=\"/inner\"></iframe>"),
            ("/inner", "<h1>Inner</h1><script src=\"/a.js\"></script><script>console.error('of the frame')</script>"),
            ("/a.js", "1"),
        ]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        run_steps(&page, &[goto(server.url("/")), expect_text("Outer")])
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let measured = page.close().await;
        assert_eq!(measured.loads.len(), 1, "{measured:?}");
        assert_eq!(measured.requests.len(), 3, "{measured:?}");
        assert_eq!(measured.console_errors[0].message, "of the frame");
    });
}

#[test]
fn popups_and_downloads_leave_the_page_as_it_is() {
    const BODY: &str = r#"<!doctype html><h1>Opener</h1><button id="open" onclick="window.open('/other')">Open</button>
<a id="file" href="/file">File</a><a id="tab" href="/other" target="_blank">Tab</a>"#;
    run(async {
        let server = PageServer::start(&[("/", BODY), ("/other", "<h1>Other</h1>"), ("/file", "!attach content")]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let steps = [goto(server.url("/")), click("#open"), click("#tab"), click("#file"), expect_text("Opener")];
        run_steps(&page, &steps).await.unwrap_or_else(|error| panic!("{error}"));
        let direct = failure(&page, &goto(server.url("/file"))).await.to_string();
        assert!(direct.contains("ERR_ABORTED"), "a URL that is a download opens no page: {direct}");
        assert_eq!(page.close().await.loads.len(), 1);
        assert!(server.asked().iter().any(|path| path == "/file"), "{:?}", server.asked());
    });
}
