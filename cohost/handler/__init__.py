"""The batching handler: the files of this folder travel in a model's archive, next to its serving.properties.

DJL Serving puts a model's folder on Python's search path, and an archive holds plain files at its root only. Therefore
the modules have the prefix `cohost_`, so that none of them hides another module of the same name. The modules use
relative imports: `model.py` declares its own folder to be a package, so the files that this project imports as
`cohost.handler.…` run unchanged in an archive.

    model.py               the entry point that DJL Serving calls, in the proxy process
    cohost_restart.py, cohost_reload.py        the start of a proxy process and its first call
    cohost_service.py      the steps of one request in the proxy process: read, tokenise, run, answer
    cohost_link.py, cohost_place.py            connect to the engine process; start and replace it
    cohost_frames.py, cohost_facts.py          the messages between the two processes; a loaded model's facts
    cohost_host.py, cohost_hosted.py           the engine process: its program, and the models in it
    cohost_scheduler.py    the order of the passes of all models of an engine process
    cohost_options.py      the keys of serving.properties
    cohost_request.py, cohost_texts.py         a request's parameters and texts; every answer 400 and 413
    cohost_tasks.py, cohost_classification.py, cohost_zero_shot.py, cohost_features.py    the tasks
    cohost_tokenizer.py    texts to sequences of tokens, truncated at the model's limit
    cohost_batches.py      the order of requests and the forming of batches, without torch
    cohost_engine.py, cohost_forward.py, cohost_packed.py        the batches of one model; a failing batch is bisected
    cohost_stream.py       copies to and from the device; small passes recorded as CUDA graphs
    cohost_watchdog.py     detects a hanging pass, and ends the engine process
    cohost_loading.py, cohost_trials.py, cohost_device.py, cohost_warm_up.py      loading a model
    cohost_errors.py, cohost_memory.py         errors with their HTTP status; lack of memory
"""
