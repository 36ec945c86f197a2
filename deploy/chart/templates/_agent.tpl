{{/*
A DaemonSet of agents. Takes a dict:
  root, name, component
  runtime       the runtime's places on the node
  server        MetaServer's address; empty: the API server, with the pod's own token, which names the node
  nodeSelector
  notOn         a list of expressions: nodes that are not for these agents
*/}}
{{- define "larder.agents" -}}
{{- $values := .root.Values -}}
{{- $agent := $values.agent -}}
{{- $provider := $values.daemon.credentialProvider -}}
{{- $runtime := .runtime -}}
{{- $host := "/host" -}}
{{- if and $runtime.configDir $runtime.hostsDir -}}
{{- if not (hasPrefix (printf "%s/" (clean $runtime.configDir)) (printf "%s/" (clean $runtime.hostsDir))) -}}
{{- fail (printf "runtime.hostsDir %s is not below runtime.configDir %s, and agents see no other settings of the runtime: set both" $runtime.hostsDir $runtime.configDir) -}}
{{- end -}}
{{- end -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ include "larder.namespace" .root }}
  labels:
    {{- include "larder.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  selector:
    matchLabels:
      {{- include "larder.selector" .component | nindent 6 }}
  updateStrategy:
    rollingUpdate:
      maxUnavailable: {{ $agent.updateStrategy.maxUnavailable }}
  minReadySeconds: 3
  template:
    metadata:
      labels:
        {{- include "larder.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        {{- with $agent.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: agent
        {{- with $values.extraCA.pem }}
        larder.dev/extra-ca: {{ sha256sum . }}
        {{- end }}
        {{- with $agent.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: larder-agent
      {{- if .server }}
      # MetaServer asks for no token, and edge nodes cannot fetch one.
      automountServiceAccountToken: false
      {{- end }}
      {{- include "larder.imagePullSecrets" .root | nindent 6 }}
      {{- include "larder.priorityClass" .root | nindent 6 }}
      {{- if or $agent.hostNetwork .server }}
      hostNetwork: true
      # Names of registries mean what they mean to the node.
      dnsPolicy: Default
      {{- end }}
      terminationGracePeriodSeconds: 15
      nodeSelector:
        kubernetes.io/os: linux
        {{- with .nodeSelector }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      affinity:
        {{- include "larder.agentAffinity" (dict "affinity" $agent.affinity "notOn" .notOn) | nindent 8 }}
      {{- with $agent.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        # The runtime's socket belongs to root.
        runAsUser: 0
        runAsGroup: 0
        seccompProfile:
          type: RuntimeDefault
        {{- with $agent.seLinuxOptions }}
        seLinuxOptions:
          {{- toYaml . | nindent 10 }}
        {{- end }}
      containers:
        - name: agent
          image: {{ include "larder.image" (list $agent.image .root) }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args:
            - --listen={{ include "larder.listen" (list $agent.port .root) }}
            - --host-root={{ $host }}
            - --runtime-endpoint=unix://{{ $host }}{{ $runtime.socket }}
            - --state-dir={{ $agent.stateDir }}
            - --max-concurrent-pulls={{ $agent.maxConcurrentPulls }}
            {{- if $agent.acceptForeignImages }}
            - --accept-foreign-images
            {{- end }}
            - --image-gc-high-threshold={{ $agent.imageGCHighThreshold }}
            - --pin-budget={{ $agent.pinBudget }}
            {{- if and $runtime.configDir $runtime.hostsDir }}
            - --hosts-dir={{ $runtime.hostsDir }}
            {{- end }}
            {{- with .server }}
            - --server={{ . }}
            {{- end }}
            {{- if $provider.enable }}
            - --image-credential-provider-bin-dir={{ $provider.hostPath }}
            {{- if $provider.configmap }}
            - --image-credential-provider-config=/etc/larder/credential-provider/CredentialProviderPlugin.yaml
            {{- else }}
            - --image-credential-provider-config={{ $provider.configFile }}
            {{- end }}
            {{- end }}
            {{- with $agent.log }}
            - --log={{ . }}
            {{- end }}
            - --log-format={{ $agent.logFormat }}
          env:
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            {{- include "larder.podEnv" .root | nindent 12 }}
            {{- if $provider.enable }}
            - {name: HOME, value: /root}
            {{- end }}
            {{- with $values.proxy.http }}
            - {name: HTTP_PROXY, value: {{ quote . }}}
            {{- end }}
            {{- with $values.proxy.https }}
            - {name: HTTPS_PROXY, value: {{ quote . }}}
            {{- end }}
            {{- with $values.proxy.noProxy }}
            - {name: NO_PROXY, value: {{ quote . }}}
            {{- end }}
            {{- if or $values.extraCA.pem $values.extraCA.configMap }}
            - {name: SSL_CERT_FILE, value: /etc/ssl/certs/ca-certificates.crt}
            - {name: SSL_CERT_DIR, value: /etc/larder/ca}
            {{- end }}
            {{- with $agent.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: http
              containerPort: {{ $agent.port }}
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 5
            timeoutSeconds: 5
          resources:
            {{- toYaml $agent.resources | nindent 12 }}
          securityContext:
            {{- include "larder.restricted" .root | nindent 12 }}
          volumeMounts:
            - {name: runtime, mountPath: {{ $host }}{{ dir $runtime.socket }}}
            - {name: state, mountPath: {{ $agent.stateDir }}}
            - {name: image-filesystem, mountPath: {{ $host }}{{ $runtime.imageFilesystem }}, readOnly: true}
            {{- with $runtime.configDir }}
            - {name: runtime-config, mountPath: {{ $host }}{{ . }}, readOnly: true}
            {{- end }}
            {{- if $provider.enable }}
            - {name: provider-plugins, mountPath: {{ $provider.hostPath }}, readOnly: true}
            {{- if $provider.configmap }}
            - {name: provider-config, mountPath: /etc/larder/credential-provider, readOnly: true}
            {{- else if ne (dir $provider.configFile) (clean $provider.hostPath) }}
            - {name: provider-config, mountPath: {{ dir $provider.configFile }}, readOnly: true}
            {{- end }}
            {{- with $provider.awsCredentialsDir }}
            - {name: aws-credentials, mountPath: /root/.aws, readOnly: true}
            {{- end }}
            {{- end }}
            {{- if or $values.extraCA.pem $values.extraCA.configMap }}
            - {name: extra-ca, mountPath: /etc/larder/ca, readOnly: true}
            {{- end }}
      volumes:
        - name: runtime
          hostPath: {path: {{ dir $runtime.socket }}, type: Directory}
        - name: state
          hostPath: {path: {{ $agent.stateDir }}, type: DirectoryOrCreate}
        - name: image-filesystem
          hostPath: {path: {{ $runtime.imageFilesystem }}, type: Directory}
        {{- with $runtime.configDir }}
        - name: runtime-config
          hostPath: {path: {{ . }}, type: DirectoryOrCreate}
        {{- end }}
        {{- if $provider.enable }}
        - name: provider-plugins
          hostPath: {path: {{ $provider.hostPath }}, type: Directory}
        {{- if $provider.configmap }}
        - name: provider-config
          configMap: {name: {{ $provider.configmap }}}
        {{- else if ne (dir $provider.configFile) (clean $provider.hostPath) }}
        - name: provider-config
          hostPath: {path: {{ dir $provider.configFile }}, type: Directory}
        {{- end }}
        {{- with $provider.awsCredentialsDir }}
        - name: aws-credentials
          hostPath: {path: {{ . }}, type: Directory}
        {{- end }}
        {{- end }}
        {{- if or $values.extraCA.pem $values.extraCA.configMap }}
        - name: extra-ca
          configMap: {name: {{ $values.extraCA.configMap | default "larder-extra-ca" }}}
        {{- end }}
{{- end }}

{{/*
Affinity of a DaemonSet of agents: the affinity from the values, with the expressions that keep agents off nodes which are
not theirs added to each of its required terms. Terms are alternatives, so one term without these expressions would let
agents run on such nodes. Takes a dict of affinity and notOn, a list of expressions.
*/}}
{{- define "larder.agentAffinity" -}}
{{- $required := list
      (dict "key" "type" "operator" "NotIn" "values" (list "virtual-kubelet"))
      (dict "key" "eks.amazonaws.com/compute-type" "operator" "NotIn" "values" (list "fargate")) -}}
{{- $required = concat $required .notOn -}}
{{- $affinity := deepCopy (.affinity | default dict) -}}
{{- $nodes := $affinity.nodeAffinity | default dict -}}
{{- $terms := list -}}
{{- range dig "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list $nodes -}}
{{- if not (or .matchExpressions .matchFields) -}}
{{- fail "a term of nodeSelectorTerms in agent.affinity is empty, which matches no node: give it matchExpressions or matchFields, or leave it out" -}}
{{- end -}}
{{- $expressions := concat (.matchExpressions | default list) $required -}}
{{- $terms = append $terms (merge (dict "matchExpressions" $expressions) .) -}}
{{- end -}}
{{- $terms = $terms | default (list (dict "matchExpressions" $required)) -}}
{{- $nodes = merge (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) $nodes -}}
{{- toYaml (merge (dict "nodeAffinity" $nodes) $affinity) -}}
{{- end }}
