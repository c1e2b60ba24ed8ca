-- Ends a worker's or a server's membership.
-- Args: as the prelude, 3 'worker' or 'server', 4 its id.
-- Invariant: a second leave changes nothing.
if ARGV[3] == 'worker' then remove_worker(ARGV[4]) else remove_server(ARGV[4]) end
serve_waiting()
return 0
