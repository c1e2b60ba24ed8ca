// The bench's scenario for k6: a login for each user, one GET with headers, one check.
import http from 'k6/http';
import { check } from 'k6';

export const options = { scenarios: { s: { executor: 'constant-vus', vus: Number(__ENV.USERS), duration: `${__ENV.SECONDS}s` } } };

let headers;

export default function () {
  if (!headers) {
    const body = JSON.stringify({ username: 'u', password: 'p' });
    const answer = http.post(`${__ENV.BASE}/auth/login`, body, { headers: { 'Content-Type': 'application/json' } });
    headers = { Authorization: 'Bearer ' + answer.json().access_token };
  }
  const answer = http.get(`${__ENV.BASE}/api/user`, { headers });
  check(answer, { ok: (r) => r.status === 200 && r.json().id === 1 });
}
