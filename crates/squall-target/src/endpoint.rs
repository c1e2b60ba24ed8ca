//! What the target serves: one table of endpoints, read by the router, by `/stats` and by the guide at `/`.

/// An endpoint of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Endpoint {
    Index,
    Login,
    Products,
    Product,
    Orders,
    Order,
    Health,
    Delay,
    RandomDelay,
    Fail,
    Bytes,
    Echo,
    Redirect,
    Freeze,
    /// Any path that is not served; answered with 404.
    Other,
    /// Counts of the others; not counted itself.
    Stats,
}

/// Every endpoint that is counted, with its path and what it does.
const TABLE: [(Endpoint, &str, &str); Endpoint::COUNTED] = [
    (Endpoint::Index, "/", "GET: this guide"),
    (Endpoint::Login, "/auth/login", "POST {\"username\":…,\"password\":…}: an access_token"),
    (Endpoint::Products, "/api/products", "GET ?page=1: a page of 20 products"),
    (Endpoint::Product, "/api/products/{id}", "GET: one product, 1 to 400"),
    (Endpoint::Orders, "/api/orders", "POST {\"product_id\":7,\"quantity\":1} with a bearer token: an order"),
    (Endpoint::Order, "/api/orders/{id}", "GET: one order"),
    (Endpoint::Health, "/health", "GET: {\"status\":\"ok\"}"),
    (Endpoint::Delay, "/delay/{ms}", "answers after so many milliseconds"),
    (Endpoint::RandomDelay, "/random-delay", "?min=5&max=50: answers after a random time in milliseconds"),
    (Endpoint::Fail, "/fail", "?rate=0.1&status=500: fails this share of requests"),
    (Endpoint::Bytes, "/bytes/{n}", "answers with a body of n bytes"),
    (Endpoint::Echo, "/echo", "answers with the request as JSON"),
    (Endpoint::Redirect, "/redirect/{n}", "redirects n times, then to /health"),
    (Endpoint::Freeze, "/freeze/{ms}", "answers at once; every later answer waits until the freeze is over"),
    (Endpoint::Other, "(other)", "anything else: 404"),
];

impl Endpoint {
    pub(crate) const COUNTED: usize = Endpoint::Stats as usize;

    /// Every counted endpoint and its path.
    pub(crate) fn all() -> impl Iterator<Item = (Endpoint, &'static str)> {
        TABLE.iter().map(|(endpoint, path, _)| (*endpoint, *path))
    }

    /// The endpoint of `path` and the rest of it, where the endpoint has one.
    pub(crate) fn of(path: &str) -> (Endpoint, &str) {
        let exact = match path {
            "/api/products" => Endpoint::Products,
            "/health" => Endpoint::Health,
            "/" => Endpoint::Index,
            "/auth/login" => Endpoint::Login,
            "/api/orders" => Endpoint::Orders,
            "/random-delay" => Endpoint::RandomDelay,
            "/fail" => Endpoint::Fail,
            "/echo" => Endpoint::Echo,
            "/stats" => Endpoint::Stats,
            _ => return Endpoint::with_argument(path),
        };
        (exact, "")
    }

    fn with_argument(path: &str) -> (Endpoint, &str) {
        const PREFIXES: [(&str, Endpoint); 6] = [
            ("/api/products/", Endpoint::Product),
            ("/api/orders/", Endpoint::Order),
            ("/delay/", Endpoint::Delay),
            ("/bytes/", Endpoint::Bytes),
            ("/redirect/", Endpoint::Redirect),
            ("/freeze/", Endpoint::Freeze),
        ];
        let found = PREFIXES.iter().find_map(|(prefix, endpoint)| Some((*endpoint, path.strip_prefix(prefix)?)));
        found.filter(|(_, argument)| !argument.is_empty()).unwrap_or((Endpoint::Other, ""))
    }
}

/// The endpoints as people read them.
pub fn guide() -> String {
    let lines = TABLE.iter().take(Endpoint::Other as usize).map(|(_, path, what)| format!("{path:<20}{what}\n"));
    lines.collect::<String>() + "/stats              GET: how many requests each of these has received\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_endpoints() {
        for (at, (endpoint, ..)) in TABLE.iter().enumerate() {
            assert_eq!(*endpoint as usize, at);
        }
    }

    #[test]
    fn paths_lead_to_their_endpoints() {
        for (path, expected) in [
            ("/api/products", (Endpoint::Products, "")),
            ("/api/products/7", (Endpoint::Product, "7")),
            ("/api/products/", (Endpoint::Other, "")),
            ("/delay/20", (Endpoint::Delay, "20")),
            ("/stats", (Endpoint::Stats, "")),
            ("/nothing", (Endpoint::Other, "")),
        ] {
            assert_eq!(Endpoint::of(path), expected, "{path}");
        }
    }
}
