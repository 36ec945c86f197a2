// Command go-client does against an API server what Go programs do with the defaults of client-go: informers, leader
// election, events, patches. It ends with the first thing that does not work. With the argument "source" it prints the
// source that it was built from.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

//go:embed main.go
var source string

const namespace = "default"

// Long enough for a machine that compiles at the same time.
const deadline = 90 * time.Second

func main() {
	if len(os.Args) == 2 && os.Args[1] == "source" {
		fmt.Print(source)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fail("reading KUBECONFIG", err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail("making a client", err)
	}
	steps := []struct {
		name string
		run  func(context.Context, *rest.Config, *kubernetes.Clientset) error
	}{
		{"typed informers", typedInformers},
		{"informers of both versions", jobInformers},
		{"leader election", leaderElection},
		{"events", recordEvents},
		{"patches", patches},
	}
	for _, step := range steps {
		if err := step.run(ctx, config, clients); err != nil {
			fail(step.name, err)
		}
		fmt.Println("ok:", step.name)
	}
}

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	os.Exit(1)
}

// typedInformers fills the stores of a factory, and sees what is created afterwards.
func typedInformers(ctx context.Context, _ *rest.Config, clients *kubernetes.Clientset) error {
	factory := informers.NewSharedInformerFactory(clients, 0)
	nodes := factory.Core().V1().Nodes()
	namespaces := factory.Core().V1().Namespaces()
	secrets := factory.Core().V1().Secrets()
	synced := []cache.InformerSynced{
		nodes.Informer().HasSynced, namespaces.Informer().HasSynced, secrets.Informer().HasSynced,
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("the stores were not filled")
	}
	if _, err := namespaces.Lister().Get(namespace); err != nil {
		return err
	}
	name := "seen-by-an-informer"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": "value"}}
	if _, err := clients.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return err
	}
	return until(ctx, "the secret to reach the store", func() (bool, error) {
		_, err := secrets.Lister().Secrets(namespace).Get(name)
		return err == nil, ignoreNotFound(err)
	})
}

// jobInformers follows one job through its life, in both versions at once.
func jobInformers(ctx context.Context, config *rest.Config, _ *kubernetes.Clientset) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := "followed"
	versions := []string{"v1alpha1", "v1beta1"}
	seen := make(chan string, 1000)
	for _, version := range versions {
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
		informer := factory.ForResource(jobs(version)).Informer()
		say := func(what string, object any) {
			if job, ok := object.(*unstructured.Unstructured); ok && job.GetName() == name {
				seen <- fmt.Sprintf("%s %s %s", version, what, job.GetLabels()["step"])
			}
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { say("added", object) },
			UpdateFunc: func(_, object any) { say("updated", object) },
			DeleteFunc: func(object any) { say("deleted", object) },
		})
		if err != nil {
			return err
		}
		factory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("the store of %s was not filled", version)
		}
	}
	if err := createJob(ctx, client, "v1beta1", name); err != nil {
		return err
	}
	if err := await(ctx, seen, versions, "added "); err != nil {
		return err
	}
	patch := []byte(`{"metadata":{"labels":{"step":"two"}}}`)
	of := client.Resource(jobs("v1alpha1")).Namespace(namespace)
	if _, err := of.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := await(ctx, seen, versions, "updated two"); err != nil {
		return err
	}
	if err := of.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await(ctx, seen, versions, "deleted two")
}

// leaderElection leads with the lock and the timing that most controllers use, and gives the lock back.
func leaderElection(ctx context.Context, _ *rest.Config, clients *kubernetes.Clientset) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lock, err := resourcelock.New(
		resourcelock.LeasesResourceLock, namespace, "go-client", clients.CoreV1(), clients.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: "go-client"},
	)
	if err != nil {
		return err
	}
	led, stopped := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(led) },
			OnStoppedLeading: func() { close(stopped) },
		},
	})
	if err != nil {
		return err
	}
	leading, release := context.WithCancel(ctx)
	defer release()
	go elector.Run(leading)
	select {
	case <-led:
	case <-ctx.Done():
		return fmt.Errorf("it never led: %w", ctx.Err())
	}
	renewed := func() (time.Time, string, error) {
		lease, err := clients.CoordinationV1().Leases(namespace).Get(ctx, "go-client", metav1.GetOptions{})
		if err != nil {
			return time.Time{}, "", err
		}
		holder := ""
		if lease.Spec.HolderIdentity != nil {
			holder = *lease.Spec.HolderIdentity
		}
		return lease.Spec.RenewTime.Time, holder, nil
	}
	first, holder, err := renewed()
	if err != nil || holder != "go-client" {
		return fmt.Errorf("the lease is held by %q: %w", holder, err)
	}
	err = until(ctx, "the lease to be renewed", func() (bool, error) {
		now, _, err := renewed()
		return now.After(first), err
	})
	if err != nil {
		return err
	}
	release()
	<-stopped
	return until(ctx, "the lease to be given back", func() (bool, error) {
		_, holder, err := renewed()
		return holder == "", err
	})
}

// recordEvents writes an event by the recorder of core/v1 and by that of events.k8s.io/v1.
func recordEvents(ctx context.Context, _ *rest.Config, clients *kubernetes.Clientset) error {
	about, err := clients.CoreV1().Secrets(namespace).Get(ctx, "seen-by-an-informer", metav1.GetOptions{})
	if err != nil {
		return err
	}
	old := record.NewBroadcaster()
	defer old.Shutdown()
	old.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	recorder := old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "go-client"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeNormal, "OldRecorder", "counted three times")
	}
	current := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	defer current.Shutdown()
	if err := current.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	current.NewRecorder(scheme.Scheme, "go-client").Eventf(about, nil, corev1.EventTypeNormal, "NewRecorder", "Test", "once")
	return until(ctx, "both events to be there", func() (bool, error) {
		list, err := clients.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		found := map[string]int32{}
		for _, event := range list.Items {
			found[event.Reason] += max(count(event), 1)
		}
		return found["OldRecorder"] >= 3 && found["NewRecorder"] >= 1, nil
	})
}

func count(event eventsv1.Event) int32 { return event.DeprecatedCount }

// patches changes one job by each kind of patch that client-go sends for custom resources, and a built-in object by a
// strategic one.
func patches(ctx context.Context, config *rest.Config, clients *kubernetes.Clientset) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	name := "patched"
	if err := createJob(ctx, client, "v1alpha1", name); err != nil {
		return err
	}
	of := client.Resource(jobs("v1beta1")).Namespace(namespace)
	for _, patch := range []struct {
		kind types.PatchType
		body string
	}{
		{types.MergePatchType, `{"metadata":{"labels":{"merge":"yes"}}}`},
		{types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`},
	} {
		if _, err := of.Patch(ctx, name, patch.kind, []byte(patch.body), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("%s: %w", patch.kind, err)
		}
	}
	job, err := of.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if labels := job.GetLabels(); labels["merge"] != "yes" || labels["json"] != "yes" {
		return fmt.Errorf("the labels are %v", labels)
	}
	// The second writer of one version is refused.
	job.SetLabels(map[string]string{"update": "yes"})
	if _, err := of.Update(ctx, job, metav1.UpdateOptions{}); err != nil {
		return err
	}
	job.SetLabels(map[string]string{"update": "again"})
	if _, err := of.Update(ctx, job, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("an update of an old version was answered with %v", err)
	}
	patch := []byte(`{"metadata":{"labels":{"strategic":"yes"}}}`)
	patched, err := clients.CoreV1().Namespaces().Patch(
		ctx, namespace, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
	)
	if err != nil {
		return fmt.Errorf("strategic merge patch: %w", err)
	}
	if patched.Labels["strategic"] != "yes" {
		return fmt.Errorf("the namespace's labels are %v", patched.Labels)
	}
	return of.Delete(ctx, name, metav1.DeleteOptions{})
}

func jobs(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps.kruise.io", Version: version, Resource: "imagepulljobs"}
}

// createJob makes a job that selects no node.
func createJob(ctx context.Context, client dynamic.Interface, version, name string) error {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.kruise.io/" + version,
		"kind":       "ImagePullJob",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"image":            "registry.invalid/nothing:1",
			"selector":         map[string]any{"matchLabels": map[string]any{"no-such": "node"}},
			"completionPolicy": map[string]any{"type": "Never"},
		},
	}}
	_, err := client.Resource(jobs(version)).Namespace(namespace).Create(ctx, job, metav1.CreateOptions{})
	return err
}

// await waits until every version has shown this.
func await(ctx context.Context, seen <-chan string, versions []string, what string) error {
	missing := map[string]bool{}
	for _, version := range versions {
		missing[version+" "+what] = true
	}
	for len(missing) > 0 {
		select {
		case event := <-seen:
			delete(missing, event)
		case <-ctx.Done():
			return fmt.Errorf("never seen: %v", missing)
		}
	}
	return nil
}

// until asks again until it is so.
func until(ctx context.Context, what string, so func() (bool, error)) error {
	for {
		yes, err := so()
		if err != nil || yes {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
