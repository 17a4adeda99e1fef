{{/* Who opens connections to what is not the release's, and where that is. */}}

{{/* The port that a URL means. */}}
{{- define "agentdyno.port" -}}
{{- $url := urlParse . -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}

{{/* Addresses that values name, of servers inside the cluster or not, by the component that asks them. JSON. */}}
{{- define "agentdyno.asked" -}}
{{- $asked := dict -}}
{{- if eq .Values.backend.kind "url" -}}{{- $_ := set $asked "sut" (list .Values.backend.url.address) -}}{{- end -}}
{{- if and .Values.recorder.enabled (not .Values.collector.enabled) .Values.collector.endpoint -}}
{{- $_ := set $asked "recorder" (list .Values.collector.endpoint) -}}
{{- end -}}
{{- if and .Values.collector.enabled (not .Values.tempo.enabled) .Values.collector.tempoEndpoint -}}
{{- $_ := set $asked "collector" (list (printf "http://%s" .Values.collector.tempoEndpoint)) -}}
{{- end -}}
{{- if .Values.grafana.enabled -}}
{{- $sources := list (ternary "" .Values.grafana.prometheusUrl .Values.prometheus.enabled) (ternary "" .Values.grafana.tempoUrl .Values.tempo.enabled) | compact -}}
{{- if $sources -}}{{- $_ := set $asked "grafana" $sources -}}{{- end -}}
{{- end -}}
{{- $asked | toJson -}}
{{- end -}}

{{/* Ports of what is in no namespace, by component: the model's hub, and the Kubernetes API. JSON. */}}
{{- define "agentdyno.world" -}}
{{- $world := dict -}}
{{- if and (eq .Values.backend.kind "vllm") .Values.backend.vllm.download -}}{{- $_ := set $world "backend" (list 443) -}}{{- end -}}
{{- if .Values.prometheus.enabled -}}{{- $_ := set $world "prometheus" .Values.networkPolicy.apiServerPorts -}}{{- end -}}
{{- $world | toJson -}}
{{- end -}}

{{/* Ports as rules have them, TCP. JSON, as {"ports": ...}. */}}
{{- define "agentdyno.tcp" -}}
{{- $ports := list -}}
{{- range . -}}{{- $ports = append $ports (dict "port" (int64 .) "protocol" "TCP") -}}{{- end -}}
{{- dict "ports" (uniq $ports) | toJson -}}
{{- end -}}

{{/* Egress rules of one component to what is not ours: (list . component). JSON, as {"rules": ...}. */}}
{{- define "agentdyno.leaving" -}}
{{- $top := index . 0 -}}
{{- $component := index . 1 -}}
{{- $outside := $top.Values.networkPolicy.outside -}}
{{- $blocks := list -}}
{{- range $outside.cidrs -}}{{- $blocks = append $blocks (dict "ipBlock" (dict "cidr" .)) -}}{{- end -}}
{{- $peers := $blocks -}}
{{- range $outside.namespaces -}}
{{- $peers = append $peers (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" .))) -}}
{{- end -}}
{{- $rules := list -}}
{{- with index (include "agentdyno.asked" $top | fromJson) $component -}}
{{- $ports := $outside.ports -}}
{{- range . -}}{{- $ports = append $ports (include "agentdyno.port" .) -}}{{- end -}}
{{- $rules = append $rules (merge (dict "to" $peers) (include "agentdyno.tcp" $ports | fromJson)) -}}
{{- end -}}
{{- with index (include "agentdyno.world" $top | fromJson) $component -}}
{{- $rules = append $rules (merge (dict "to" $blocks) (include "agentdyno.tcp" . | fromJson)) -}}
{{- end -}}
{{- dict "rules" $rules | toJson -}}
{{- end -}}
