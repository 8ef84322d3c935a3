package snapshot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Bucket is a store in an S3 bucket.
type Bucket struct {
	client       *minio.Client
	name, prefix string
}

// NewBucket returns the store in a bucket. The credentials are in the environment variables of the AWS tools. The CA certificates in
// authorities are trusted in addition to the public ones.
func NewBucket(endpoint, bucket, prefix, region string, authorities []byte) (*Bucket, error) {
	parsed, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	options := &minio.Options{Creds: credentials.NewEnvAWS(), Secure: parsed.Scheme == "https", Region: region}
	if len(authorities) > 0 {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("ca.crt of the store has no certificate")
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		options.Transport = transport
	}
	client, err := minio.New(parsed.Host, options)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", endpoint, err)
	}
	return &Bucket{client: client, name: bucket, prefix: strings.Trim(prefix, "/")}, nil
}

// Put implements Store. A bucket shows an object only when its upload is complete.
func (b *Bucket) Put(ctx context.Context, key, file string) error {
	_, err := b.client.FPutObject(ctx, b.name, path.Join(b.prefix, key), file, minio.PutObjectOptions{ContentType: "application/octet-stream"})
	return err
}

// Get implements Store.
func (b *Bucket) Get(ctx context.Context, key, file string) error {
	return b.client.FGetObject(ctx, b.name, path.Join(b.prefix, key), file, minio.GetObjectOptions{})
}

// List implements Store.
func (b *Bucket) List(ctx context.Context, prefix string) ([]string, error) {
	root := ""
	if b.prefix != "" {
		root = b.prefix + "/"
	}
	var keys []string
	for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: root + prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, object.Err
		}
		keys = append(keys, strings.TrimPrefix(object.Key, root))
	}
	slices.Sort(keys)
	return keys, nil
}

// Delete implements Store.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	return b.client.RemoveObject(ctx, b.name, path.Join(b.prefix, key), minio.RemoveObjectOptions{})
}
