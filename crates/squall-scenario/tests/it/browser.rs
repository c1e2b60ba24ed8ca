//! Browser tasks: their language, and real Chromium on the pages of the built-in shop.

use squall_metrics::{MetricDelta, MetricKind};
use squall_scenario::{NoFiles, Scenario, ScenarioOverrides};
use squall_target::TargetEndpoint;
use squall_testkit::tls::{CertificateAuthority, CertificateValidity, TlsProxy};

use crate::harness::{RecordedRun, connect_error, run, scenario, target};

const SHOPPING: &str = r##"
[browser]
timeout = "60s"

[[task]]
name = "buy"
kind = "browser"

[[task.step]]
name = "catalogue"
goto = "/shop?page={{ random(2, 2) }}"
expect = { text = "page 2", selector = "h1" }

[[task.step]]
name = "product"
click = "a.product"
expect = { url = "/shop/21" }

[[task.step]]
name = "stock"
click = "#stock"
expect = { text = "in stock", selector = "#in-stock" }

[[task.step]]
name = "name"
fill = "#name"
value = "user {{ user() }}"

[[task.step]]
name = "quantity"
select = "#quantity"
value = 2

[[task.step]]
name = "order"
press = "Enter"
on = "#name"
expect = { text = "Thank you", visible = "#order", hidden = "#buy" }
"##;

fn metric<'r>(recorded: &'r RecordedRun, name: &str) -> &'r MetricDelta {
    let found = recorded.metrics.iter().find(|metric| metric.key.name == name);
    found.unwrap_or_else(|| panic!("no metric {name} in {:?}", recorded.lines(MetricKind::Custom)))
}

#[test]
fn the_report_counts_the_page_loads_and_requests_that_the_shop_has_served() {
    let target = target();
    let (recorded, completed) = run(&scenario(&target, SHOPPING), 2);
    assert_eq!(completed, [true, true], "{:?}", recorded.notes());
    let steps = ["catalogue", "product", "stock", "name", "quantity", "order"];
    let expected: Vec<String> = steps.iter().map(|step| format!("buy/{step}: OK×2")).collect();
    assert_eq!(recorded.lines(MetricKind::Request), expected);
    assert_eq!(recorded.lines(MetricKind::Group), ["buy: OK×2"]);

    use TargetEndpoint::{ShopHome, ShopProduct, ShopReceipt};
    for (step, endpoint) in [("catalogue", ShopHome), ("product", ShopProduct), ("order", ShopReceipt)] {
        let loads = metric(&recorded, &format!("buy/{step}:load"));
        assert_eq!((loads.requests(), target.requests_of(endpoint)), (2, 2), "{step}");
        for figure in ["ttfb", "fcp", "dom_ready", "lcp", "cls"] {
            assert_eq!(metric(&recorded, &format!("buy/{step}:{figure}")).requests(), 2, "{step}:{figure}");
        }
        assert!(loads.service.min() > 0);
    }
    assert_eq!(metric(&recorded, "buy/product:inp").requests(), 2, "the product's page was used");
    let requests: Vec<&MetricDelta> =
        recorded.metrics.iter().filter(|metric| metric.key.name.ends_with(":requests")).collect();
    let sent: u64 = requests.iter().map(|metric| metric.requests()).sum();
    assert_eq!(sent, target.requests(), "every request of the browser is counted once");
    assert_eq!(requests.iter().map(|metric| metric.errors()).sum::<u64>(), 0);
    assert!(requests.iter().all(|metric| metric.bytes_in > 0));
    let (sent, recorded) = (recorded.engine.begun, recorded.engine.recorded);
    assert_eq!((sent, recorded), (12, 12), "a step is one request");
}

#[test]
fn cpu_time_of_browsers_counts_as_the_generators_own() {
    let target = target();
    run(&scenario(&target, "[[task]]\nname = \"page\"\nkind = \"browser\"\ngoto = \"/shop\"\n"), 1);
    let usage = squall_engine::helper_usage();
    // A browser needs more than this to start; it has ended by now.
    assert!(usage.cpu.as_millis() >= 50, "{usage:?}");
}

#[test]
fn a_failed_step_ends_the_task_and_names_step_selector_and_line() {
    let target = target();
    let folder = tempfile::tempdir().expect("a folder");
    let screenshots = folder.path().join("pictures");
    let text = format!(
        "[browser]\nscreenshots = {screenshots:?}\n{}",
        r##"[[task]]
name = "buy"
kind = "browser"
[[task.step]]
name = "home"
goto = "/shop"
[[task.step]]
name = "pay"
click = "#pay"
timeout = "3s"
[[task.step]]
name = "never"
click = "#buy"
[[task]]
name = "missing"
kind = "browser"
goto = "/shop/9999"
"##
    );
    let (recorded, completed) = run(&scenario(&target, &text), 1);
    assert_eq!(completed, [false, false]);
    assert_eq!(
        recorded.lines(MetricKind::Request),
        ["buy/home: OK×1", "buy/pay: STEP_TIMEOUT×1", "missing: HTTP_404×1"]
    );
    let notes = recorded.notes();
    let pay = format!(
        "click `#pay` took too long: no element matches (shop.toml:10; screenshot {})",
        screenshots.join("buy-pay.png").display()
    );
    assert!(notes.contains(&pay.as_str()), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("/shop/9999 answered with status 404 (shop.toml:")), "{notes:?}");
    assert!(std::fs::read(screenshots.join("buy-pay.png")).expect("a picture").starts_with(b"\x89PNG"));
}

#[test]
fn browser_and_http_tasks_share_one_run() {
    let target = target();
    let both = "[[task]]\nname = \"page\"\nkind = \"browser\"\ngoto = \"/shop\"\n[[task]]\nname = \"api\"\nget = \"/health\"\n";
    let (recorded, completed) = run(&scenario(&target, both), 1);
    assert_eq!(completed, [true, true], "{:?}", recorded.notes());
    assert_eq!(recorded.lines(MetricKind::Request), ["page: OK×1", "api: HTTP_200×1"]);
}

#[test]
fn a_target_that_refuses_connections_fails_the_step() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("bound")
    };
    let target = target();
    let text = format!("[[task]]\nname = \"page\"\nkind = \"browser\"\ngoto = \"http://{closed}/\"\n");
    let (recorded, _) = run(&scenario(&target, &text), 1);
    assert_eq!(recorded.lines(MetricKind::Request), ["page: NAVIGATION_FAILED×1"]);
    assert!(recorded.notes()[0].contains("net::ERR_CONNECTION_REFUSED"), "{:?}", recorded.notes());
}

#[track_caller]
fn rejected(rest: &str, expected: &[&str]) {
    let text = format!("target = \"http://127.0.0.1:1\"\n{rest}");
    let errors =
        Scenario::parse("shop.toml", &text, &mut NoFiles, ScenarioOverrides::default()).expect_err("a mistake");
    let errors = errors.to_string();
    for part in expected {
        assert!(errors.contains(part), "{part:?} is not in\n{errors}");
    }
}

#[test]
fn mistakes_in_browser_tasks_are_reported_with_their_line() {
    let task = |rest: &str| format!("[[task]]\nname = \"a\"\nkind = \"browser\"\n{rest}");
    rejected(&task(""), &["shop.toml:2:1: the browser task `a` has no step", "add goto ="]);
    rejected(&task("get = \"/\""), &["shop.toml:5:1: unknown key `get`"]);
    rejected(&task("goto = \"/\"\nclick = \"#a\""), &["a second action in one step"]);
    rejected(&task("fill = \"#a\""), &["shop.toml:5:8: `fill` needs a value", "add value = \"text\" beside fill"]);
    rejected(&task("click = \"#a\"\nvalue = \"x\""), &["`value` belongs to `fill` and `select`"]);
    rejected(&task("press = \"Entr\""), &["there is no key `Entr`", "such as Enter"]);
    rejected(&task("expect = { txt = \"x\" }"), &["did you mean `text`?"]);
    rejected(&task("expect = { selector = \"h1\" }"), &["says where `text` is looked for"]);
    rejected(&task("goto = \"/\"\n[[task.step]]\ngoto = \"/\""), &["has an action and steps"]);
    rejected(&task("[[task.step]]\nname = \"x\""), &["the step `x` does nothing"]);
    rejected(
        &task("[[task.step]]\nname = \"x\"\ngoto = \"/\"\n[[task.step]]\nname = \"x\"\ngoto = \"/\""),
        &["already has"],
    );
    rejected("[[task]]\nname = \"a\"\nkind = \"selenium\"\nget = \"/\"", &["there is no kind of task `selenium`"]);
    rejected(&format!("[browser]\nviewport = \"big\"\n{}", task("goto = \"/\"")), &["`big` is not a size in pixels"]);
    rejected(&format!("[load]\nthresholds = [\"a:lcpp_p75<1s\"]\n{}", task("goto = \"/\"")), &["not a statistic"]);
    rejected(
        &format!("[load]\nthresholds = [\"b:lcp_p75<1s\"]\n{}", task("goto = \"/\"")),
        &["there is no metric `b:lcp`"],
    );
    let step = "[load]\nthresholds = [\"home:lcp_p75<1s\", \"a:lcp_p75<1s\"]\n[[task]]\nname = \"a\"\nkind = \"browser\"\n\
                [[task.step]]\nname = \"home\"\ngoto = \"/\"";
    rejected(step, &["there is no metric `home:lcp`", "did you mean `a/home:lcp`?", "there is no metric `a:lcp`"]);
    let grid = |settings: &str| format!("[browser]\n{settings}\n{}", task("goto = \"/\""));
    rejected(&grid("grid = \"grid:8080\""), &["`grid:8080` is no URL of a grid", "write grid = \"ws://host:8080\""]);
    rejected(
        &grid("grid = \"ws://a\"\nca = \"ca.pem\""),
        &["shop.toml:4:6: `ca` is for a grid with TLS", "write wss://"],
    );
    rejected(&grid("grid = \"wss://a\"\nca = \"/nowhere/ca.pem\""), &["shop.toml:4:6: cannot read /nowhere/ca.pem"]);
}

#[test]
fn a_grid_behind_tls_is_verified_with_its_own_authority() {
    let target = target();
    let (authority, stranger) = (CertificateAuthority::new(), CertificateAuthority::new());
    let identity = authority.issue(&["localhost"], CertificateValidity::Current);
    // Not a grid: its answer shows that the handshake passed.
    let config = CertificateAuthority::server_config(&identity, None, &["http/1.1"]);
    let proxy = TlsProxy::start(config, target.addr().port());
    for (trusted, expected) in
        [(&authority, "refused a session with status 404"), (&stranger, "`ca` in [browser] names")]
    {
        let text = format!(
            "[browser]\ngrid = \"wss://localhost:{}\"\nca = {:?}\n[[task]]\nname = \"a\"\nkind = \"browser\"\ngoto = \"/\"",
            proxy.port(),
            trusted.ca_file()
        );
        let error = connect_error(&scenario(&target, &text));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn messages_about_a_grid_do_not_show_the_token_of_its_url() {
    let target = target();
    let text =
        |grid: &str| format!("[browser]\ngrid = {grid:?}\n[[task]]\nname = \"a\"\nkind = \"browser\"\ngoto = \"/\"");
    let refused = connect_error(&scenario(&target, &text(&format!("ws://{}/?token=sqg_secret", target.addr()))));
    assert!(refused.contains("refused a session") && !refused.contains("sqg_secret"), "{refused}");
    let text = format!("target = \"http://127.0.0.1:1\"\n{}", text("grid:8080?token=sqg_secret"));
    let wrong = Scenario::parse("shop.toml", &text, &mut NoFiles, ScenarioOverrides::default()).expect_err("a mistake");
    assert!(wrong.to_string().contains("`grid:8080` is no URL of a grid"), "{wrong}");
}

#[test]
fn a_plan_lists_the_steps_and_takes_thresholds_on_figures() {
    let text = format!(
        "target = \"http://127.0.0.1:1\"\n[load]\nthresholds = [\"buy/catalogue:lcp_p75<2.5s\", \"buy/order:cls_p75<0.1\"]\n{SHOPPING}"
    );
    let scenario = Scenario::parse("shop.toml", &text, &mut NoFiles, ScenarioOverrides::default())
        .unwrap_or_else(|errors| panic!("{errors}"));
    insta::assert_snapshot!(scenario.describe());
}
