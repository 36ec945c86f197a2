{{- define "larder.namespace" -}}
{{ .Values.installation.namespace | default .Release.Namespace }}
{{- end }}

{{- define "larder.name" -}}
{{ .Values.nameOverride | default "larder" }}
{{- end }}

{{/* Prefix of the names of all objects. */}}
{{- define "larder.fullname" -}}
{{ .Values.fullnameOverride | default (include "larder.name" .) }}
{{- end }}

{{/* Name of a component's ServiceAccount. Takes a list of the component and the root. */}}
{{- define "larder.account" -}}
{{- $component := index . 0 -}}
{{- $root := index . 1 -}}
{{- $account := (get $root.Values $component).serviceAccount -}}
{{- if not (or $account.create $account.name) -}}
{{- fail (printf "%s.serviceAccount.create is false, so %s.serviceAccount.name must name an existing ServiceAccount" $component $component) -}}
{{- end -}}
{{ $account.name | default (printf "%s-%s" (include "larder.fullname" $root) $component) }}
{{- end }}

{{- define "larder.controllerAccount" -}}
{{ include "larder.account" (list "controller" .) }}
{{- end }}

{{/* The policy lets the controller's account write every status, so agents must not have the same one. */}}
{{- define "larder.agentAccount" -}}
{{- $account := include "larder.account" (list "agent" .) -}}
{{- if eq $account (include "larder.controllerAccount" .) -}}
{{- fail (printf "controller.serviceAccount.name and agent.serviceAccount.name are both %s: agents must not have the controller's rights" $account) -}}
{{- end -}}
{{ $account }}
{{- end }}

{{/* A list of dicts as one dict; later ones win. The function merge ignores 0, false and "" in them. */}}
{{- define "larder.overlaid" -}}
{{- $all := dict -}}
{{- range . -}}
{{- range $key, $value := . -}}
{{- $_ := set $all $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end }}

{{- define "larder.fixedLabels" -}}
app.kubernetes.io/name: {{ include "larder.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: larder
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "larder.labels" -}}
{{ include "larder.fixedLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of an object with labels of its own. Takes a list of the root and these labels. */}}
{{- define "larder.labelsWith" -}}
{{- $root := index . 0 -}}
{{ include "larder.fixedLabels" $root }}
{{- with include "larder.overlaid" (list $root.Values.commonLabels (index . 1)) | fromYaml }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The field annotations, or nothing. Takes a list of the root and the object's own annotations. */}}
{{- define "larder.annotations" -}}
{{- with include "larder.overlaid" (list (index . 0).Values.commonAnnotations (index . 1)) | fromYaml -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of a component. Takes a list of the root and the component. */}}
{{- define "larder.selector" -}}
app.kubernetes.io/name: {{ include "larder.name" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* A component's image. Takes a list of its values and the root. */}}
{{- define "larder.image" -}}
{{- $image := index . 0 -}}
{{- $root := index . 1 -}}
{{- with $image.registry | default $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ $image.repository }}:{{ $image.tag | default $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end }}

{{/*
Arguments of a container with additional ones. A flag that is given twice is an error when the program starts, so it is
rejected here. Takes a dict of args, extra and value, the name of the value that extra is from.
*/}}
{{- define "larder.args" -}}
{{- $flags := list -}}
{{- range .args -}}
{{- $flags = append $flags (first (splitList "=" .)) -}}
{{- end -}}
{{- $value := .value -}}
{{- range .extra -}}
{{- $flag := first (splitList "=" .) -}}
{{- if has $flag $flags -}}
{{- fail (printf "%s contains %s, which the chart sets itself: use the chart's value for it" $value $flag) -}}
{{- end -}}
{{- end -}}
{{- toYaml (concat .args .extra) -}}
{{- end }}

{{/* The probes of a component that has some. Takes its values. */}}
{{- define "larder.probes" -}}
{{- $component := . -}}
{{- range $field, $path := dict "livenessProbe" "/healthz" "readinessProbe" "/readyz" "startupProbe" "/healthz" -}}
{{- with get $component $field }}
{{ $field }}:
  httpGet: {path: {{ $path }}, port: http}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Feature gates as JSON: {"jobs": bool, "unknown": [names]}. The last value of a gate wins, as in the program. */}}
{{- define "larder.gates" -}}
{{- $jobs := true -}}
{{- $unknown := list -}}
{{- range splitList "," (.Values.featureGates | default "") -}}
  {{- $gate := trim . -}}
  {{- if $gate -}}
    {{- $pair := splitn "=" 2 $gate -}}
    {{- $value := lower (trim ($pair._1 | default "")) -}}
    {{- if not (has $value (list "true" "false")) -}}
      {{- fail (printf "`%s` in featureGates is not of the form Name=true or Name=false" $gate) -}}
    {{- end -}}
    {{- if eq (trim $pair._0) "ImagePullJobGate" -}}
      {{- $jobs = eq $value "true" -}}
    {{- else -}}
      {{- $unknown = append $unknown (trim $pair._0) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "jobs" $jobs "unknown" $unknown | toJson -}}
{{- end }}

{{/* "true" or nothing: whether jobs are processed. */}}
{{- define "larder.servesJobs" -}}
{{- if (include "larder.gates" . | fromJson).jobs }}true{{ end -}}
{{- end }}

{{/* "true" or nothing: whether the policy on writers of NodeImage status is installed. */}}
{{- define "larder.hasPolicy" -}}
{{- if eq .Values.policy "always" }}true{{ end -}}
{{- if and (eq .Values.policy "auto") (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}true{{ end -}}
{{- end }}

{{/* Identity that CloudCore uses when it forwards edge nodes' writes: Absent, Node or CloudCore. */}}
{{- define "larder.kubeEdge" -}}
{{- if .Values.kubeEdge.enabled }}{{ .Values.kubeEdge.identity }}{{ else }}Absent{{ end -}}
{{- end }}

{{/* Address on which a component listens: the pod's own and a port. */}}
{{- define "larder.listen" -}}
{{- $root := index . 1 -}}
{{- if $root.Values.ipv6 }}[$(POD_IP)]{{ else }}$(POD_IP){{ end }}:{{ index . 0 }}
{{- end }}

{{/* The Secret with the token of the agents' metrics; empty: there is none, and metrics are not served to the network. */}}
{{- define "larder.metricsTokenSecret" -}}
{{- $monitoring := .Values.monitoring -}}
{{- if $monitoring.metricsTokenSecret -}}
{{- $monitoring.metricsTokenSecret -}}
{{- else if or $monitoring.podMonitor.enabled $monitoring.serviceMonitor.enabled -}}
{{- printf "%s-metrics-token" (include "larder.fullname" .) -}}
{{- end -}}
{{- end }}

{{- define "larder.podEnv" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}

{{/* Name of the chart's own PriorityClass, or of the existing one to use. */}}
{{- define "larder.priorityClassName" -}}
{{ .Values.priorityClass.name | default (ternary (include "larder.fullname" .) "" .Values.priorityClass.create) }}
{{- end }}

{{/* Fields of a pod that both components have. Takes a list of the component's values and the root. */}}
{{- define "larder.podFields" -}}
{{- $component := index . 0 -}}
{{- $root := index . 1 -}}
{{- with $component.priorityClassName | default (include "larder.priorityClassName" $root) }}
priorityClassName: {{ . }}
{{- end }}
{{- with $component.terminationGracePeriodSeconds }}
terminationGracePeriodSeconds: {{ int . }}
{{- end }}
{{- include "larder.podNames" . }}
{{- end }}

{{/* How a pod resolves names, and the Secrets for its image. Takes a list of the component's values and the root. */}}
{{- define "larder.podNames" -}}
{{- $component := index . 0 -}}
{{- with (index . 1).Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "larder.controllerNetwork" -}}
{{- $controller := .Values.controller -}}
{{- if $controller.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with $controller.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" $controller.hostNetwork) }}
dnsPolicy: {{ . }}
{{- end }}
{{- end }}

{{/*
Tolerations of Larder's own pods: those of the values, and the start-up taint where new nodes wait for images. Without it no
agent would run on them, and a cluster of new nodes alone would have no controller. Takes a list of tolerations and root.
*/}}
{{- define "larder.tolerations" -}}
{{- $tolerations := index . 0 | default list -}}
{{- $gate := (index . 1).Values.controller.nodeGate -}}
{{- $everything := false -}}
{{- range $tolerations -}}
{{- if and (eq (.operator | default "") "Exists") (not .key) (not .effect) -}}
{{- $everything = true -}}
{{- end -}}
{{- end -}}
{{- if and $gate.enabled (not $everything) -}}
{{- $tolerations = append $tolerations (dict "key" $gate.taint "operator" "Exists") -}}
{{- end -}}
{{- toYaml $tolerations -}}
{{- end }}

{{/* The pod of a hook: the controller's program with other arguments. Takes a dict of root, account and args. */}}
{{- define "larder.hookPod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ .account }}
restartPolicy: Never
{{- include "larder.podNames" (list $values.controller .root) }}
{{- include "larder.controllerNetwork" .root }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with $values.controller.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.controller.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "larder.tolerations" (list $values.controller.tolerations .root) | fromYamlArray }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.controller.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ index .args 0 }}
    image: {{ include "larder.image" (list $values.controller.image .root) }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    # kubectl describe pod then shows the error.
    terminationMessagePolicy: FallbackToLogsOnError
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {memory: 256Mi}
    {{- with $values.controller.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
