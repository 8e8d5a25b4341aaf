"""What Prometheus is told, where the site turns it on: `table` what there is, `read` how it is read from a
`moment`, `text` how it is written, `http` who is answered."""
