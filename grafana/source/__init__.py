"""The dashboards as code: `make dashboards-json` makes grafana/dashboards/ of them."""
